//go:build cgo && linux

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_api pp;

static const struct {
	int library, required;
	const char *name;
	size_t offset;
} functions[] = {
#define X(library, required, name, result, args) {library, required, #name, offsetof(struct pp_api, name)},
	PP_FUNCTIONS(X)
#undef X
};

#define FUNCTIONS (sizeof functions / sizeof functions[0])

void *pp_open(const char *path, int global, char *text, size_t size) {
	void *h = dlopen(path, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
	if (h == NULL) {
		const char *why = dlerror();
		snprintf(text, size, "%s", why != NULL ? why : "dlopen failed");
	}
	return h;
}

const char *pp_bind(int library, void *handle) {
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (functions[i].library != library) continue;
		void *f = dlsym(handle, functions[i].name);
		if (f == NULL && functions[i].required) return functions[i].name;
		memcpy((char *)&pp + functions[i].offset, &f, sizeof f);
	}
	return NULL;
}

int pp_where(int library, char *path, size_t size) {
	for (size_t i = 0; i < FUNCTIONS; i++) {
		void *f;
		memcpy(&f, (char *)&pp + functions[i].offset, sizeof f);
		Dl_info info;
		if (functions[i].library == library && f != NULL && dladdr(f, &info) != 0 && info.dli_fname != NULL) {
			snprintf(path, size, "%s", info.dli_fname);
			return 0;
		}
	}
	return -1;
}

int pp_fail(pp_error *e, int library, const char *call, int code) {
	memset(e, 0, sizeof *e);
	snprintf(e->call, sizeof e->call, "%s", call);
	e->code = code;
	const char *name = NULL, *text = NULL;
	switch (library) {
	case PP_CUDA:
		if (pp.cuGetErrorName != NULL) pp.cuGetErrorName(code, &name);
		if (pp.cuGetErrorString != NULL) pp.cuGetErrorString(code, &text);
		break;
	case PP_NVRTC:
		text = pp.nvrtcGetErrorString(code);
		break;
	case PP_CUBLASLT:
		if (pp.cublasLtGetStatusName != NULL) name = pp.cublasLtGetStatusName(code);
		if (pp.cublasLtGetStatusString != NULL) text = pp.cublasLtGetStatusString(code);
		break;
	case PP_NCCL:
		name = pp.ncclGetErrorString(code);
		if (pp.ncclGetLastError != NULL) text = pp.ncclGetLastError(NULL);
		break;
	case PP_CUDNN:
		name = pp.cudnnGetErrorString(code);
		pp.cudnnGetLastErrorString(e->text, sizeof e->text); // clears it
		break;
	}
	if (name != NULL) snprintf(e->name, sizeof e->name, "%s", name);
	if (text != NULL) snprintf(e->text, sizeof e->text, "%s", text);
	return -1;
}

#define CU(name, ...) PP_CALL(PP_CUDA, e, name, __VA_ARGS__)
#define USE(c) CU(cuCtxSetCurrent, c)

int pp_init(int *devices, int *version, pp_error *e) {
	CU(cuInit, 0);
	CU(cuDriverGetVersion, version);
	CU(cuDeviceGetCount, devices);
	return 0;
}

// Numbers of CUdevice_attribute.
enum { ATTR_CLOCK_KHZ = 13, ATTR_SMS = 16, ATTR_MAJOR = 75, ATTR_MINOR = 76 };

int pp_device_get(int index, pp_device *d, pp_error *e) {
	int device;
	memset(d, 0, sizeof *d);
	CU(cuDeviceGet, &device, index);
	CU(cuDeviceGetName, d->name, sizeof d->name - 1, device);
	CU(cuDeviceGetPCIBusId, d->bus, sizeof d->bus - 1, device);
	CU(cuDeviceTotalMem_v2, &d->memory, device);
	CU(cuDeviceGetAttribute, &d->sms, ATTR_SMS, device);
	CU(cuDeviceGetAttribute, &d->major, ATTR_MAJOR, device);
	CU(cuDeviceGetAttribute, &d->minor, ATTR_MINOR, device);
	if (pp.cuDeviceGetAttribute(&d->clock_khz, ATTR_CLOCK_KHZ, device) != 0) d->clock_khz = 0;
	return 0;
}

int pp_retain(int index, pp_context *c, size_t *free_bytes, pp_error *e) {
	int device;
	size_t total;
	CU(cuDeviceGet, &device, index);
	CU(cuDevicePrimaryCtxRetain, c, device);
	USE(*c);
	CU(cuMemGetInfo_v2, free_bytes, &total);
	return 0;
}

int pp_release(int index, pp_error *e) {
	int device;
	CU(cuDeviceGet, &device, index);
	CU(cuDevicePrimaryCtxRelease_v2, device);
	return 0;
}

int pp_alloc(pp_context c, size_t bytes, pp_ptr *p, pp_error *e) {
	USE(c);
	CU(cuMemAlloc_v2, p, bytes);
	return 0;
}

int pp_free(pp_context c, pp_ptr p, pp_error *e) {
	USE(c);
	CU(cuMemFree_v2, p);
	return 0;
}

int pp_host_alloc(pp_context c, size_t bytes, void **p, pp_ptr *device, pp_error *e) {
	USE(c);
	CU(cuMemHostAlloc, p, bytes, 1 | 2); // portable, mapped
	memset(*p, 0, bytes);
	CU(cuMemHostGetDevicePointer_v2, device, *p, 0);
	return 0;
}

int pp_host_free(pp_context c, void *p, pp_error *e) {
	USE(c);
	CU(cuMemFreeHost, p);
	return 0;
}

int pp_write(pp_context c, pp_ptr dst, const void *src, size_t bytes, pp_error *e) {
	USE(c);
	CU(cuMemcpyHtoD_v2, dst, src, bytes);
	return 0;
}

int pp_read(pp_context c, void *dst, pp_ptr src, size_t bytes, pp_error *e) {
	USE(c);
	CU(cuCtxSynchronize);
	CU(cuMemcpyDtoH_v2, dst, src, bytes);
	return 0;
}

int pp_stream_create(pp_context c, pp_stream *s, pp_error *e) {
	USE(c);
	CU(cuStreamCreate, s, 1); // does not wait for the default stream
	return 0;
}

int pp_stream_destroy(pp_context c, pp_stream s, pp_error *e) {
	USE(c);
	CU(cuStreamDestroy_v2, s);
	return 0;
}

int pp_stream_sync(pp_context c, pp_stream s, pp_error *e) {
	USE(c);
	CU(cuStreamSynchronize, s);
	return 0;
}

int pp_event_record(pp_context c, pp_stream s, pp_event *ev, pp_error *e) {
	USE(c);
	if (*ev == NULL) CU(cuEventCreate, ev, 0);
	CU(cuEventRecord, *ev, s);
	return 0;
}

int pp_event_destroy(pp_context c, pp_event ev, pp_error *e) {
	USE(c);
	CU(cuEventDestroy_v2, ev);
	return 0;
}

int pp_event_elapsed(pp_context c, pp_event a, pp_event b, float *ms, pp_error *e) {
	USE(c);
	CU(cuEventSynchronize, b);
	CU(cuEventElapsedTime, ms, a, b);
	return 0;
}

int pp_copy(pp_context c, pp_stream s, int kind, void *host, pp_ptr dst, pp_ptr src, size_t bytes, int n, pp_error *e) {
	USE(c);
	for (int i = 0; i < n; i++) {
		switch (kind) {
		case 0: CU(cuMemcpyDtoDAsync_v2, dst, src, bytes, s); break;
		case 1: CU(cuMemcpyHtoDAsync_v2, dst, host, bytes, s); break;
		default: CU(cuMemcpyDtoHAsync_v2, host, src, bytes, s); break;
		}
	}
	return 0;
}

int pp_fill(pp_context c, pp_stream s, pp_ptr dst, size_t bytes, int n, pp_error *e) {
	USE(c);
	for (int i = 0; i < n; i++) CU(cuMemsetD8Async, dst, 0, bytes, s);
	return 0;
}

#define RTC(name, ...) \
	do { \
		int code = pp.name(__VA_ARGS__); \
		if (code != 0) { \
			pp.nvrtcDestroyProgram(&program); \
			return pp_fail(e, PP_NVRTC, #name, code); \
		} \
	} while (0)

int pp_architectures(int *list, int most) {
	int n = 0;
	if (pp.nvrtcGetNumSupportedArchs == NULL || pp.nvrtcGetSupportedArchs == NULL) return 0;
	if (pp.nvrtcGetNumSupportedArchs(&n) != 0 || n > most || pp.nvrtcGetSupportedArchs(list) != 0) return 0;
	return n;
}

int pp_compile(const char *source, const char *arch, char **cubin, size_t *size, char **log, pp_error *e) {
	void *program = NULL;
	*cubin = *log = NULL;
	PP_CALL(PP_NVRTC, e, nvrtcCreateProgram, &program, source, "perfplan.cu", 0, NULL, NULL);
	const char *options[] = {arch, "--std=c++17"};
	int code = pp.nvrtcCompileProgram(program, 2, options);
	if (code != 0) {
		size_t n = 0;
		if (pp.nvrtcGetProgramLogSize(program, &n) == 0 && n > 0 && (*log = calloc(1, n + 1)) != NULL) pp.nvrtcGetProgramLog(program, *log);
		pp.nvrtcDestroyProgram(&program);
		return pp_fail(e, PP_NVRTC, "nvrtcCompileProgram", code);
	}
	RTC(nvrtcGetCUBINSize, program, size);
	if ((*cubin = malloc(*size + 1)) == NULL) {
		pp.nvrtcDestroyProgram(&program);
		return pp_fail(e, PP_NVRTC, "malloc", 1);
	}
	RTC(nvrtcGetCUBIN, program, *cubin);
	pp.nvrtcDestroyProgram(&program);
	return 0;
}

int pp_module_load(pp_context c, const char *cubin, pp_module *m, pp_error *e) {
	USE(c);
	CU(cuModuleLoadData, m, cubin);
	return 0;
}

int pp_function_get(pp_context c, pp_module m, const char *name, pp_function *f, pp_error *e) {
	USE(c);
	CU(cuModuleGetFunction, f, m, name);
	return 0;
}

int pp_launch_kernel(pp_context c, pp_stream s, const pp_launch *l, int n, pp_error *e) {
	USE(c);
	for (int i = 0; i < n; i++)
		CU(cuLaunchKernel, l->f, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], 0, s, l->args, NULL);
	return 0;
}

int pp_capture_begin(pp_context c, pp_stream s, pp_error *e) {
	USE(c);
	CU(cuStreamBeginCapture_v2, s, 2); // relaxed: NCCL may allocate meanwhile
	return 0;
}

int pp_capture_end(pp_context c, pp_stream s, int keep, pp_graph_exec *g, pp_error *e) {
	pp_graph graph = NULL;
	USE(c);
	CU(cuStreamEndCapture, s, &graph);
	int code = 0;
	if (keep) code = pp.cuGraphInstantiateWithFlags(g, graph, 0);
	if (graph != NULL) pp.cuGraphDestroy(graph);
	return code == 0 ? 0 : pp_fail(e, PP_CUDA, "cuGraphInstantiateWithFlags", code);
}

int pp_graph_free(pp_context c, pp_graph_exec g, pp_error *e) {
	USE(c);
	CU(cuGraphExecDestroy, g);
	return 0;
}

int pp_graph_launch(int gpus, const pp_context *c, const pp_stream *s, const pp_graph_exec *g, int n, pp_error *e) {
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < gpus; j++) {
			USE(c[j]);
			CU(cuGraphLaunch, g[j], s[j]);
		}
	}
	return 0;
}

int pp_nvrtc_version(int *major, int *minor) { return pp.nvrtcVersion(major, minor); }

size_t pp_lt_version(void) { return pp.cublasLtGetVersion(); }

int pp_nccl_version(void) {
	int version = 0;
	return pp.ncclGetVersion(&version) == 0 ? version : 0;
}

size_t pp_cudnn_version(void) { return pp.cudnnGetVersion(); }

void pp_store(uint32_t *p, uint32_t value) { __atomic_store_n(p, value, __ATOMIC_SEQ_CST); }

uint32_t pp_load(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
