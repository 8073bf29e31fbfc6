// A stand-in for libcuda, NVRTC, cuBLASLt and NCCL in one library, for the tests of
// the driver layer on machines without a GPU. Device memory is the host's, work is done
// when it is queued, matrix multiplies and collectives are really computed on bf16.
// PERFPLAN_STANDIN_FAIL names a function that fails.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAIL(code) \
	do { \
		const char *f = getenv("PERFPLAN_STANDIN_FAIL"); \
		if (f != NULL && strcmp(f, __func__) == 0) return code; \
	} while (0)

typedef unsigned long long ptr;

// ---- libcuda ----

static int current = -1; // device of the context
static int capturing;
static char contexts[2];

int cuInit(unsigned f) { FAIL(100); return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int c, const char **s) { *s = c == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN"; return 0; }
int cuGetErrorString(int c, const char **s) { *s = c == 2 ? "out of memory" : "unknown error"; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < 2 ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Stand-in"); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
	switch (a) {
	case 13: *v = 1000000; return 0;
	case 16: *v = 4; return 0;
	case 38: *v = 1 << 20; return 0;
	case 75: *v = 9; return 0;
	case 76: *v = 0; return 0;
	}
	return 1;
}
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 8ull << 30; return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d + 1); return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = &contexts[d]; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxSetCurrent(void *c) { current = (int)((char *)c - contexts); return c == NULL ? 201 : 0; }
int cuCtxSynchronize(void) { return current < 0 ? 201 : 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 7ull << 30; *t = 8ull << 30; return 0; }
int cuMemAlloc_v2(ptr *p, size_t n) {
	FAIL(2);
	if (n > 1ull << 30) return 2;
	*p = (ptr)(uintptr_t)calloc(1, n);
	return *p ? 0 : 2;
}
int cuMemFree_v2(ptr p) { free((void *)(uintptr_t)p); return 0; }
int cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = malloc(n); return 0; }
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuMemHostGetDevicePointer_v2(ptr *d, void *p, unsigned f) { *d = (ptr)(uintptr_t)p; return 0; }
int cuMemcpyHtoD_v2(ptr d, const void *s, size_t n) { memcpy((void *)(uintptr_t)d, s, n); return 0; }
int cuMemcpyDtoH_v2(void *d, ptr s, size_t n) { memcpy(d, (void *)(uintptr_t)s, n); return 0; }
int cuMemcpyHtoDAsync_v2(ptr d, const void *s, size_t n, void *st) { return cuMemcpyHtoD_v2(d, s, n); }
int cuMemcpyDtoHAsync_v2(void *d, ptr s, size_t n, void *st) { return cuMemcpyDtoH_v2(d, s, n); }
int cuMemcpyDtoDAsync_v2(ptr d, ptr s, size_t n, void *st) { memcpy((void *)(uintptr_t)d, (void *)(uintptr_t)s, n); return 0; }
int cuMemsetD8Async(ptr d, unsigned char v, size_t n, void *st) { memset((void *)(uintptr_t)d, v, n); return 0; }
int cuStreamCreate(void **s, unsigned f) { *s = malloc(1); return 0; }
int cuStreamDestroy_v2(void *s) { free(s); return 0; }
int cuStreamSynchronize(void *s) { FAIL(700); return 0; }
int cuStreamBeginCapture_v2(void *s, int m) { capturing++; return 0; }
int cuStreamEndCapture(void *s, void **g) { capturing--; *g = malloc(1); return 0; }
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { *e = malloc(1); return 0; }
int cuGraphExecDestroy(void *e) { free(e); return 0; }
int cuGraphDestroy(void *g) { free(g); return 0; }
int cuGraphLaunch(void *e, void *s) { return 0; }
int cuEventCreate(void **e, unsigned f) { *e = calloc(1, sizeof(double)); return 0; }
int cuEventRecord(void *e, void *s) {
	static double now;
	*(double *)e = now += 0.5; // ms
	return 0;
}
int cuEventSynchronize(void *e) { return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { *ms = (float)(*(double *)b - *(double *)a); return 0; }
int cuEventDestroy_v2(void *e) { free(e); return 0; }
int cuModuleLoadData(void **m, const void *image) { *m = (void *)image; return memcmp(image, "cubin", 5) == 0 ? 0 : 200; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
	*f = strdup(name);
	return strcmp(name, "missing") == 0 ? 500 : 0;
}

// Kernel "add_one": int32 pointer, int64 count, float32 to add.
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **args, void **extra) {
	FAIL(719);
	if (strcmp(f, "add_one") == 0) {
		float *p = (float *)(uintptr_t) * (ptr *)args[0];
		int64_t n = *(int64_t *)args[1];
		for (int64_t i = 0; i < n; i++) p[i] += *(float *)args[2];
	}
	return 0;
}

// ---- NVRTC ----

int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 3; return 0; }
int nvrtcGetSupportedArchs(int *l) { l[0] = 75; l[1] = 90; l[2] = 100; return 0; }
const char *nvrtcGetErrorString(int c) { return "NVRTC_ERROR_COMPILATION"; }
int nvrtcCreateProgram(void **p, const char *src, const char *name, int n, const char *const *h, const char *const *i) { *p = strdup(src); return 0; }
int nvrtcDestroyProgram(void **p) { free(*p); *p = NULL; return 0; }
int nvrtcCompileProgram(void *p, int n, const char *const *o) { return n < 1 || strcmp(o[0], "--gpu-architecture=sm_90") != 0 ? 5 : strstr(p, "error") != NULL ? 6 : 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = 16; return 0; }
int nvrtcGetProgramLog(void *p, char *s) { snprintf(s, 16, "line 1: wrong"); return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { *n = 6; return 0; }
int nvrtcGetCUBIN(void *p, char *s) { memcpy(s, "cubin", 6); return 0; }

// ---- cuBLASLt ----

struct desc { int compute, trans[2]; void *scale[2]; };
struct layout { int type; uint64_t rows, cols; int64_t ld; };
struct result { uint64_t algo[8]; size_t workspace; int state; float waves; int reserved[4]; };

size_t cublasLtGetVersion(void) { return 130000; }
const char *cublasLtGetStatusName(int c) { return c == 15 ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE"; }
const char *cublasLtGetStatusString(int c) { return "not possible"; }
int cublasLtCreate(void **h) { *h = malloc(1); return current < 0 ? 1 : 0; }
int cublasLtDestroy(void *h) { free(h); return 0; }
int cublasLtMatmulDescCreate(void **d, int compute, int scale) { struct desc *x = calloc(1, sizeof *x); x->compute = compute; *d = x; return scale == 0 ? 0 : 7; }
int cublasLtMatmulDescDestroy(void *d) { free(d); return 0; }
int cublasLtMatmulDescSetAttribute(void *d, int a, const void *v, size_t n) {
	struct desc *x = d;
	switch (a) {
	case 3: case 4: if (n != 4) return 7; memcpy(&x->trans[a - 3], v, 4); return 0;
	case 17: case 18: if (n != 8) return 7; memcpy(&x->scale[a - 17], v, 8); return 0;
	case 25: return n == 1 ? 0 : 7;
	}
	return 7;
}
int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
	struct layout *x = malloc(sizeof *x);
	*x = (struct layout){type, rows, cols, ld};
	*l = x;
	return ld < (int64_t)rows ? 7 : 0;
}
int cublasLtMatrixLayoutDestroy(void *l) { free(l); return 0; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = malloc(1); return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n) { return a == 1 && n == 8 ? 0 : 7; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *o, void *p, int want, struct result *r, int *got) {
	FAIL(15);
	struct desc *x = d;
	struct layout *la = a, *lb = b, *lo = o;
	uint64_t m = x->trans[0] ? la->cols : la->rows, k = x->trans[0] ? la->rows : la->cols, kb = x->trans[1] ? lb->cols : lb->rows, n = x->trans[1] ? lb->rows : lb->cols;
	if (k != kb || m != lo->rows || n != lo->cols || want != 1) return 7;
	if (la->type == 28 && (!x->trans[0] || x->trans[1] || x->scale[0] == NULL)) return 15;
	memset(r, 0, sizeof *r);
	r->algo[7] = 42;
	*got = 1;
	return 0;
}
static float up(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static uint16_t down(float f) { uint32_t u; memcpy(&u, &f, 4); return (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16); }
int cublasLtMatmul(void *h, void *d, const void *alpha, const void *A, void *a, const void *B, void *b, const void *beta, const void *C, void *c, void *D, void *o, const uint64_t *algo, void *w, size_t wn, void *s) {
	FAIL(13);
	struct desc *x = d;
	struct layout *la = a, *lb = b, *lo = o;
	if (algo[7] != 42 || *(float *)alpha != 1 || *(float *)beta != 0) return 7;
	if (la->type != 14 || lo->rows * lo->cols * (la->rows * la->cols / lo->rows) > 1 << 22) return 0;
	const uint16_t *p = A, *q = B;
	uint16_t *out = D;
	uint64_t k = x->trans[0] ? la->rows : la->cols;
	for (uint64_t j = 0; j < lo->cols; j++)
		for (uint64_t i = 0; i < lo->rows; i++) {
			float sum = 0;
			for (uint64_t l = 0; l < k; l++)
				sum += up(x->trans[0] ? p[l + i * la->ld] : p[i + l * la->ld]) * up(x->trans[1] ? q[j + l * lb->ld] : q[l + j * lb->ld]);
			out[i + j * lo->ld] = down(sum);
		}
	return 0;
}

// ---- NCCL ----

struct comm { int ranks, rank; struct comm **all; };
struct call { int op; const void *in; void *out; size_t n; int type, peer; struct comm *c; };
typedef struct { char bytes[128]; } id;

static struct comm *members[8];
static struct call calls[4096];
static int ncalls, depth;

int ncclGetVersion(int *v) { *v = 22809; return 0; }
const char *ncclGetErrorString(int c) { return "unhandled system error"; }
const char *ncclGetLastError(void *c) { return "no such link"; }
int ncclGetUniqueId(id *u) { memset(u, 7, sizeof *u); return 0; }
int ncclCommInitRank(struct comm **c, int n, id u, int rank) {
	FAIL(2);
	if (u.bytes[0] != 7 || u.bytes[127] != 7) return 4;
	*c = calloc(1, sizeof **c);
	(*c)->ranks = n, (*c)->rank = rank, (*c)->all = members;
	members[rank] = *c;
	return 0;
}
int ncclCommDestroy(struct comm *c) { free(c); return 0; }
int ncclGroupStart(void) { depth++; return 0; }
static int put(int op, const void *in, void *out, size_t n, int type, int peer, struct comm *c) {
	if (depth == 0 || ncalls == 4096) return 5;
	calls[ncalls++] = (struct call){op, in, out, n, type, peer, c};
	return 0;
}
int ncclAllReduce(const void *i, void *o, size_t n, int t, int r, struct comm *c, void *s) { FAIL(1); return put(0, i, o, n, t, 0, c); }
int ncclAllGather(const void *i, void *o, size_t n, int t, struct comm *c, void *s) { return put(1, i, o, n, t, 0, c); }
int ncclReduceScatter(const void *i, void *o, size_t n, int t, int r, struct comm *c, void *s) { return put(2, i, o, n, t, 0, c); }
int ncclBroadcast(const void *i, void *o, size_t n, int t, int root, struct comm *c, void *s) { return put(4, i, o, n, t, root, c); }
int ncclSend(const void *i, size_t n, int t, int peer, struct comm *c, void *s) { return put(5, i, NULL, n, t, peer, c); }
int ncclRecv(void *o, size_t n, int t, int peer, struct comm *c, void *s) { return put(6, NULL, o, n, t, peer, c); }
int ncclGroupEnd(void) {
	if (--depth > 0) return 0;
	for (int i = 0; i < ncalls; i++) {
		struct call *x = &calls[i];
		size_t w = x->type == 7 ? 4 : 2;
		for (int j = 0; j < ncalls; j++) {
			struct call *y = &calls[j];
			if (y->op != x->op && !(x->op == 6 && y->op == 5)) continue;
			switch (x->op) {
			case 1: memcpy((char *)x->out + y->c->rank * x->n * w, y->in, x->n * w); break;
			case 4: if (y->c->rank == x->peer) memcpy(x->out, y->in, x->n * w); break;
			case 6: if (y->op == 5 && y->c->rank == x->peer && y->peer == x->c->rank) memcpy(x->out, y->in, x->n * w); break;
			}
		}
		if (x->op != 0 && x->op != 2) continue;
		for (size_t e = 0; e < x->n && x->type == 9; e++) {
			float sum = 0;
			for (int j = 0; j < ncalls; j++) sum += up(((const uint16_t *)calls[j].in)[(x->op == 2 ? x->c->rank * x->n : 0) + e]);
			((uint16_t *)x->out)[e] = down(sum);
		}
	}
	ncalls = 0;
	return 0;
}
