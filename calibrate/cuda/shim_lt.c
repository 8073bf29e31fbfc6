//go:build cgo && linux

#include "shim.h"

#include <string.h>

#define LT(name, ...) \
	do { \
		int code = pp.name(__VA_ARGS__); \
		if (code != 0) { \
			pp_fail(e, PP_CUBLASLT, #name, code); \
			goto failed; \
		} \
	} while (0)

// Numbers of cublasLtMatmulDescAttributes_t and cublasLtMatmulPreferenceAttributes_t.
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_A_SCALE = 17, DESC_B_SCALE = 18, DESC_FAST_ACCUM = 25, PREF_WORKSPACE = 1 };

enum { REAL_32F = 0 }; // cudaDataType

int pp_lt_create(pp_context c, void **handle, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	PP_CALL(PP_CUBLASLT, e, cublasLtCreate, handle);
	return 0;
}

int pp_lt_destroy(pp_context c, void *handle, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	PP_CALL(PP_CUBLASLT, e, cublasLtDestroy, handle);
	return 0;
}

void pp_gemm_destroy(pp_gemm *g) {
	if (g->d != NULL) pp.cublasLtMatrixLayoutDestroy(g->d);
	if (g->b != NULL) pp.cublasLtMatrixLayoutDestroy(g->b);
	if (g->a != NULL) pp.cublasLtMatrixLayoutDestroy(g->a);
	if (g->desc != NULL) pp.cublasLtMatmulDescDestroy(g->desc);
	memset(g, 0, sizeof *g);
}

int pp_gemm_create(pp_context c, void *handle, const pp_gemm_spec *s, pp_gemm *g, pp_error *e) {
	void *pref = NULL;
	pp_lt_result best;
	int found = 0;
	int32_t ta = s->trans_a, tb = s->trans_b;
	int8_t fast = (int8_t)s->fast_accum;
	uint64_t workspace = s->workspace_size;
	void *scale = (void *)(uintptr_t)s->scale;

	memset(g, 0, sizeof *g);
	memset(&best, 0, sizeof best);
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	LT(cublasLtMatmulDescCreate, &g->desc, s->compute, REAL_32F);
	LT(cublasLtMatmulDescSetAttribute, g->desc, DESC_TRANSA, &ta, sizeof ta);
	LT(cublasLtMatmulDescSetAttribute, g->desc, DESC_TRANSB, &tb, sizeof tb);
	if (scale != NULL) {
		LT(cublasLtMatmulDescSetAttribute, g->desc, DESC_A_SCALE, &scale, sizeof scale);
		LT(cublasLtMatmulDescSetAttribute, g->desc, DESC_B_SCALE, &scale, sizeof scale);
		LT(cublasLtMatmulDescSetAttribute, g->desc, DESC_FAST_ACCUM, &fast, sizeof fast);
	}
	LT(cublasLtMatrixLayoutCreate, &g->a, s->type_in, s->rows_a, s->cols_a, (int64_t)s->rows_a);
	LT(cublasLtMatrixLayoutCreate, &g->b, s->type_in, s->rows_b, s->cols_b, (int64_t)s->rows_b);
	LT(cublasLtMatrixLayoutCreate, &g->d, s->type_out, s->rows_d, s->cols_d, (int64_t)s->rows_d);
	LT(cublasLtMatmulPreferenceCreate, &pref);
	LT(cublasLtMatmulPreferenceSetAttribute, pref, PREF_WORKSPACE, &workspace, sizeof workspace);
	LT(cublasLtMatmulAlgoGetHeuristic, handle, g->desc, g->a, g->b, g->d, g->d, pref, 1, &best, &found);
	if (found < 1 || best.state != 0) {
		pp_fail(e, PP_CUBLASLT, "cublasLtMatmulAlgoGetHeuristic", found < 1 ? 15 : best.state); // 15: not supported
		goto failed;
	}
	pp.cublasLtMatmulPreferenceDestroy(pref);
	g->handle = handle;
	g->algo = best.algo;
	g->waves = best.waves;
	g->pa = s->pa, g->pb = s->pb, g->pd = s->pd;
	g->workspace = s->workspace, g->workspace_size = s->workspace_size;
	return 0;

failed:
	if (pref != NULL) pp.cublasLtMatmulPreferenceDestroy(pref);
	pp_gemm_destroy(g);
	return -1;
}

int pp_gemm_run(pp_context c, pp_stream s, const pp_gemm *g, int n, pp_error *e) {
	const float one = 1, zero = 0;
	void *d = (void *)(uintptr_t)g->pd;
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	for (int i = 0; i < n; i++)
		PP_CALL(PP_CUBLASLT, e, cublasLtMatmul, g->handle, g->desc, &one, (const void *)(uintptr_t)g->pa, g->a, (const void *)(uintptr_t)g->pb, g->b, &zero,
			d, g->d, d, g->d, &g->algo, (void *)(uintptr_t)g->workspace, g->workspace_size, s);
	return 0;
}
