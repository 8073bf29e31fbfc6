// Prototypes of the CUDA driver, NVRTC, cuBLASLt, NCCL and cuDNN calls that calibration
// makes, written out from their public documentation, so that no header of theirs is
// needed. The functions are looked up in libraries opened at run time.
#ifndef PERFPLAN_SHIM_H
#define PERFPLAN_SHIM_H

#include <stddef.h>
#include <stdint.h>

// Opaque handles of the libraries.
typedef struct pp_context *pp_context;
typedef struct pp_stream *pp_stream;
typedef struct pp_event *pp_event;
typedef struct pp_module *pp_module;
typedef struct pp_function *pp_function;
typedef struct pp_graph *pp_graph;
typedef struct pp_graph_exec *pp_graph_exec;
typedef struct pp_comm *pp_comm;
typedef unsigned long long pp_ptr; // CUdeviceptr

typedef struct { char internal[128]; } pp_nccl_id; // ncclUniqueId

typedef struct { uint64_t data[8]; } pp_lt_algo; // cublasLtMatmulAlgo_t
typedef struct {                                 // cublasLtMatmulHeuristicResult_t
	pp_lt_algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} pp_lt_result;

// X(library, required, name in the library, result, arguments)
#define PP_FUNCTIONS(X) \
	X(0, 1, cuInit, int, (unsigned)) \
	X(0, 1, cuDriverGetVersion, int, (int *)) \
	X(0, 1, cuGetErrorName, int, (int, const char **)) \
	X(0, 1, cuGetErrorString, int, (int, const char **)) \
	X(0, 1, cuDeviceGetCount, int, (int *)) \
	X(0, 1, cuDeviceGet, int, (int *, int)) \
	X(0, 1, cuDeviceGetName, int, (char *, int, int)) \
	X(0, 1, cuDeviceGetAttribute, int, (int *, int, int)) \
	X(0, 1, cuDeviceTotalMem_v2, int, (size_t *, int)) \
	X(0, 1, cuDeviceGetPCIBusId, int, (char *, int, int)) \
	X(0, 1, cuDevicePrimaryCtxRetain, int, (pp_context *, int)) \
	X(0, 1, cuDevicePrimaryCtxRelease_v2, int, (int)) \
	X(0, 1, cuCtxSetCurrent, int, (pp_context)) \
	X(0, 1, cuCtxSynchronize, int, (void)) \
	X(0, 1, cuMemGetInfo_v2, int, (size_t *, size_t *)) \
	X(0, 1, cuMemAlloc_v2, int, (pp_ptr *, size_t)) \
	X(0, 1, cuMemFree_v2, int, (pp_ptr)) \
	X(0, 1, cuMemHostAlloc, int, (void **, size_t, unsigned)) \
	X(0, 1, cuMemFreeHost, int, (void *)) \
	X(0, 1, cuMemHostGetDevicePointer_v2, int, (pp_ptr *, void *, unsigned)) \
	X(0, 1, cuMemcpyHtoD_v2, int, (pp_ptr, const void *, size_t)) \
	X(0, 1, cuMemcpyDtoH_v2, int, (void *, pp_ptr, size_t)) \
	X(0, 1, cuMemcpyHtoDAsync_v2, int, (pp_ptr, const void *, size_t, pp_stream)) \
	X(0, 1, cuMemcpyDtoHAsync_v2, int, (void *, pp_ptr, size_t, pp_stream)) \
	X(0, 1, cuMemcpyDtoDAsync_v2, int, (pp_ptr, pp_ptr, size_t, pp_stream)) \
	X(0, 1, cuMemsetD8Async, int, (pp_ptr, unsigned char, size_t, pp_stream)) \
	X(0, 1, cuStreamCreate, int, (pp_stream *, unsigned)) \
	X(0, 1, cuStreamDestroy_v2, int, (pp_stream)) \
	X(0, 1, cuStreamSynchronize, int, (pp_stream)) \
	X(0, 1, cuStreamBeginCapture_v2, int, (pp_stream, int)) \
	X(0, 1, cuStreamEndCapture, int, (pp_stream, pp_graph *)) \
	X(0, 1, cuGraphInstantiateWithFlags, int, (pp_graph_exec *, pp_graph, unsigned long long)) \
	X(0, 1, cuGraphExecDestroy, int, (pp_graph_exec)) \
	X(0, 1, cuGraphDestroy, int, (pp_graph)) \
	X(0, 1, cuGraphLaunch, int, (pp_graph_exec, pp_stream)) \
	X(0, 1, cuEventCreate, int, (pp_event *, unsigned)) \
	X(0, 1, cuEventRecord, int, (pp_event, pp_stream)) \
	X(0, 1, cuEventSynchronize, int, (pp_event)) \
	X(0, 1, cuEventElapsedTime, int, (float *, pp_event, pp_event)) \
	X(0, 1, cuEventDestroy_v2, int, (pp_event)) \
	X(0, 1, cuModuleLoadData, int, (pp_module *, const void *)) \
	X(0, 1, cuModuleGetFunction, int, (pp_function *, pp_module, const char *)) \
	X(0, 1, cuLaunchKernel, int, (pp_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pp_stream, void **, void **)) \
	X(1, 1, nvrtcVersion, int, (int *, int *)) \
	X(1, 1, nvrtcGetErrorString, const char *, (int)) \
	X(1, 0, nvrtcGetNumSupportedArchs, int, (int *)) \
	X(1, 0, nvrtcGetSupportedArchs, int, (int *)) \
	X(1, 1, nvrtcCreateProgram, int, (void **, const char *, const char *, int, const char *const *, const char *const *)) \
	X(1, 1, nvrtcDestroyProgram, int, (void **)) \
	X(1, 1, nvrtcCompileProgram, int, (void *, int, const char *const *)) \
	X(1, 1, nvrtcGetProgramLogSize, int, (void *, size_t *)) \
	X(1, 1, nvrtcGetProgramLog, int, (void *, char *)) \
	X(1, 1, nvrtcGetCUBINSize, int, (void *, size_t *)) \
	X(1, 1, nvrtcGetCUBIN, int, (void *, char *)) \
	X(2, 1, cublasLtGetVersion, size_t, (void)) \
	X(2, 0, cublasLtGetStatusName, const char *, (int)) \
	X(2, 0, cublasLtGetStatusString, const char *, (int)) \
	X(2, 1, cublasLtCreate, int, (void **)) \
	X(2, 1, cublasLtDestroy, int, (void *)) \
	X(2, 1, cublasLtMatmulDescCreate, int, (void **, int, int)) \
	X(2, 1, cublasLtMatmulDescDestroy, int, (void *)) \
	X(2, 1, cublasLtMatmulDescSetAttribute, int, (void *, int, const void *, size_t)) \
	X(2, 1, cublasLtMatrixLayoutCreate, int, (void **, int, uint64_t, uint64_t, int64_t)) \
	X(2, 1, cublasLtMatrixLayoutDestroy, int, (void *)) \
	X(2, 1, cublasLtMatmulPreferenceCreate, int, (void **)) \
	X(2, 1, cublasLtMatmulPreferenceDestroy, int, (void *)) \
	X(2, 1, cublasLtMatmulPreferenceSetAttribute, int, (void *, int, const void *, size_t)) \
	X(2, 1, cublasLtMatmulAlgoGetHeuristic, int, (void *, void *, void *, void *, void *, void *, void *, int, pp_lt_result *, int *)) \
	X(2, 1, cublasLtMatmul, int, (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, const pp_lt_algo *, void *, size_t, pp_stream)) \
	X(3, 1, ncclGetVersion, int, (int *)) \
	X(3, 1, ncclGetErrorString, const char *, (int)) \
	X(3, 0, ncclGetLastError, const char *, (pp_comm)) \
	X(3, 1, ncclGetUniqueId, int, (pp_nccl_id *)) \
	X(3, 1, ncclCommInitRank, int, (pp_comm *, int, pp_nccl_id, int)) \
	X(3, 1, ncclCommDestroy, int, (pp_comm)) \
	X(3, 1, ncclGroupStart, int, (void)) \
	X(3, 1, ncclGroupEnd, int, (void)) \
	X(3, 1, ncclAllReduce, int, (const void *, void *, size_t, int, int, pp_comm, pp_stream)) \
	X(3, 1, ncclAllGather, int, (const void *, void *, size_t, int, pp_comm, pp_stream)) \
	X(3, 1, ncclReduceScatter, int, (const void *, void *, size_t, int, int, pp_comm, pp_stream)) \
	X(3, 1, ncclBroadcast, int, (const void *, void *, size_t, int, int, pp_comm, pp_stream)) \
	X(3, 1, ncclSend, int, (const void *, size_t, int, int, pp_comm, pp_stream)) \
	X(3, 1, ncclRecv, int, (void *, size_t, int, int, pp_comm, pp_stream)) \
	X(4, 1, cudnnGetVersion, size_t, (void)) \
	X(4, 1, cudnnGetErrorString, const char *, (int)) \
	X(4, 1, cudnnGetLastErrorString, void, (char *, size_t)) \
	X(4, 1, cudnnCreate, int, (void **)) \
	X(4, 1, cudnnDestroy, int, (void *)) \
	X(4, 1, cudnnSetStream, int, (void *, pp_stream)) \
	X(4, 1, cudnnBackendCreateDescriptor, int, (int, void **)) \
	X(4, 1, cudnnBackendDestroyDescriptor, int, (void *)) \
	X(4, 1, cudnnBackendFinalize, int, (void *)) \
	X(4, 1, cudnnBackendSetAttribute, int, (void *, int, int, int64_t, const void *)) \
	X(4, 1, cudnnBackendGetAttribute, int, (void *, int, int, int64_t, int64_t *, void *)) \
	X(4, 1, cudnnBackendExecute, int, (void *, void *, void *))

// The libraries, as numbered above.
enum { PP_CUDA, PP_NVRTC, PP_CUBLASLT, PP_NCCL, PP_CUDNN, PP_LIBRARIES };

struct pp_api {
#define X(library, required, name, result, args) result (*name) args;
	PP_FUNCTIONS(X)
#undef X
};
extern struct pp_api pp;

// pp_error says which call failed. Every function below returns 0, or -1 with the
// error filled.
typedef struct {
	char call[48];
	int code;
	char name[64];
	char text[512];
} pp_error;

int pp_fail(pp_error *e, int library, const char *call, int code);

// PP_CALL makes a call of the table and leaves with an error when it fails.
#define PP_CALL(library, e, name, ...) \
	do { \
		int pp_code = pp.name(__VA_ARGS__); \
		if (pp_code != 0) return pp_fail(e, library, #name, pp_code); \
	} while (0)

// pp_open opens a library; on failure it returns NULL with the loader's reason in text.
void *pp_open(const char *path, int global, char *text, size_t size);
// pp_bind looks up the functions of a library. It returns the first one that is
// required and missing, or NULL.
const char *pp_bind(int library, void *handle);
// pp_where is the file that a library's functions came from.
int pp_where(int library, char *path, size_t size);

typedef struct {
	int sms, major, minor, clock_khz;
	size_t memory;
	char name[256], bus[32];
} pp_device;

int pp_init(int *devices, int *version, pp_error *e);
int pp_device_get(int index, pp_device *d, pp_error *e);
int pp_retain(int index, pp_context *c, size_t *free_bytes, pp_error *e);
int pp_release(int index, pp_error *e);

int pp_alloc(pp_context c, size_t bytes, pp_ptr *p, pp_error *e);
int pp_free(pp_context c, pp_ptr p, pp_error *e);
int pp_host_alloc(pp_context c, size_t bytes, void **p, pp_ptr *device, pp_error *e);
int pp_host_free(pp_context c, void *p, pp_error *e);
int pp_write(pp_context c, pp_ptr dst, const void *src, size_t bytes, pp_error *e);
int pp_read(pp_context c, void *dst, pp_ptr src, size_t bytes, pp_error *e);

int pp_stream_create(pp_context c, pp_stream *s, pp_error *e);
int pp_stream_destroy(pp_context c, pp_stream s, pp_error *e);
int pp_stream_sync(pp_context c, pp_stream s, pp_error *e);
int pp_event_record(pp_context c, pp_stream s, pp_event *ev, pp_error *e);
int pp_event_destroy(pp_context c, pp_event ev, pp_error *e);
int pp_event_elapsed(pp_context c, pp_event a, pp_event b, float *ms, pp_error *e);

// Copies: kind 0 device to device, 1 host to device, 2 device to host.
int pp_copy(pp_context c, pp_stream s, int kind, void *host, pp_ptr dst, pp_ptr src, size_t bytes, int n, pp_error *e);
int pp_fill(pp_context c, pp_stream s, pp_ptr dst, size_t bytes, int n, pp_error *e);

// pp_architectures lists the compute capabilities that the compiler knows, 90 for 9.0;
// none when it does not say or knows more than fit.
int pp_architectures(int *list, int most);

// pp_compile compiles CUDA C++; the cubin is malloc'ed. When the source does not
// compile, log is malloc'ed too.
int pp_compile(const char *source, const char *arch, char **cubin, size_t *size, char **log, pp_error *e);
int pp_module_load(pp_context c, const char *cubin, pp_module *m, pp_error *e);
int pp_function_get(pp_context c, pp_module m, const char *name, pp_function *f, pp_error *e);

typedef struct {
	pp_function f;
	unsigned grid[3], block[3];
	void **args; // malloc'ed with the values behind it
} pp_launch;
int pp_launch_kernel(pp_context c, pp_stream s, const pp_launch *l, int n, pp_error *e);

int pp_capture_begin(pp_context c, pp_stream s, pp_error *e);
int pp_capture_end(pp_context c, pp_stream s, int keep, pp_graph_exec *g, pp_error *e);
int pp_graph_free(pp_context c, pp_graph_exec g, pp_error *e);
// pp_graph_launch replays the graphs of several GPUs n times.
int pp_graph_launch(int gpus, const pp_context *c, const pp_stream *s, const pp_graph_exec *g, int n, pp_error *e);

// A matrix multiply D = op(A)·op(B) of column-major matrices.
typedef struct {
	void *handle, *desc, *a, *b, *d;
	pp_lt_algo algo;
	size_t workspace_size;
	pp_ptr pa, pb, pd, workspace;
	float waves;
} pp_gemm;
typedef struct {
	int type_in, type_out, compute, trans_a, trans_b, fast_accum;
	uint64_t rows_a, cols_a, rows_b, cols_b, rows_d, cols_d;
	pp_ptr pa, pb, pd, scale, workspace;
	size_t workspace_size;
} pp_gemm_spec;
int pp_lt_create(pp_context c, void **handle, pp_error *e);
int pp_lt_destroy(pp_context c, void *handle, pp_error *e);
int pp_gemm_create(pp_context c, void *handle, const pp_gemm_spec *s, pp_gemm *g, pp_error *e);
void pp_gemm_destroy(pp_gemm *g);
int pp_gemm_run(pp_context c, pp_stream s, const pp_gemm *g, int n, pp_error *e);

// A tensor of a cuDNN graph: in device memory at data, virtual (between operations
// alone) or a value of fp32.
typedef struct {
	int type; // cudnnDataType_t
	int virtual, by_value;
	int64_t dims[4], strides[4];
	pp_ptr data;
	float value;
} pp_dnn_tensor;
// An operation of a cuDNN graph on tensors by number; -1 for those it does not take.
typedef struct {
	int kind; // 0 pointwise, 1 matrix multiply, 2 reduction, 3 reshape
	int mode; // cudnnPointwiseMode_t or cudnnReduceTensorOp_t
	int axis; // of generated indices
	int type; // cudnnDataType_t that it computes in
	int x, b, t, y;
} pp_dnn_op;
typedef struct pp_dnn *pp_dnn;
int pp_dnn_create_handle(pp_context c, void **handle, pp_error *e);
int pp_dnn_destroy_handle(pp_context c, void *handle, pp_error *e);
// pp_dnn_create makes the plan that the heuristic picks for a graph, with its
// workspace.
int pp_dnn_create(pp_context c, void *handle, int tensors, const pp_dnn_tensor *t, int ops, const pp_dnn_op *o, pp_dnn *g, pp_error *e);
void pp_dnn_destroy(pp_context c, pp_dnn g);
int pp_dnn_run(pp_context c, pp_stream s, const pp_dnn g, int n, pp_error *e);

// Versions; call them only when the library is there.
int pp_nvrtc_version(int *major, int *minor);
size_t pp_lt_version(void);
int pp_nccl_version(void);
size_t pp_cudnn_version(void);

// Atomic access to memory that a GPU sees too.
void pp_store(uint32_t *p, uint32_t value);
uint32_t pp_load(const uint32_t *p);

// Collectives of the local members of a group.
typedef struct {
	int members, ranks;
	int rank[64];
	pp_context context[64];
	pp_stream stream[64];
	pp_comm comm[64];
} pp_group;
typedef struct {
	int op; // 0 all-reduce, 1 all-gather, 2 reduce-scatter, 3 all-to-all, 4 broadcast, 5 send-recv
	int type;     // ncclDataType_t
	size_t count; // elements of the larger side
	size_t width; // bytes of an element
	pp_ptr in[64], out[64];
} pp_collective;
int pp_nccl_new_id(pp_nccl_id *id, pp_error *e);
int pp_nccl_join(pp_group *g, const pp_nccl_id *id, pp_error *e);
int pp_nccl_leave(pp_group *g, pp_error *e);
int pp_nccl_run(const pp_group *g, const pp_collective *k, int n, pp_error *e);

#endif
