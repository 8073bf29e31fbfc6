//go:build cgo && linux

#include "shim.h"

#include <stdbool.h>
#include <stdlib.h>

// Numbers of cuDNN 9's backend (cudnn_graph.h): descriptors, attributes, their types.
enum {
	DESC_POINTWISE = 0, DESC_ENGINECFG = 3, DESC_ENGINEHEUR = 4, DESC_PLAN = 5, DESC_OP_POINTWISE = 13, DESC_GRAPH = 15, DESC_VARIANTS = 16,
	DESC_TENSOR = 17, DESC_MATMUL = 18, DESC_OP_MATMUL = 19, DESC_REDUCTION = 21, DESC_OP_REDUCTION = 22, DESC_OP_RESHAPE = 31
};
enum {
	POINTWISE_MODE = 0, POINTWISE_MATH = 1, POINTWISE_AXIS = 9, HEUR_MODE = 200, HEUR_GRAPH = 201, HEUR_RESULTS = 202,
	PLAN_HANDLE = 400, PLAN_ENGINECFG = 401, PLAN_WORKSPACE = 402, OP_POINTWISE_PW = 750, OP_POINTWISE_X = 751, OP_POINTWISE_B = 752,
	OP_POINTWISE_Y = 753, OP_POINTWISE_T = 758, GRAPH_HANDLE = 800, GRAPH_OPS = 801, TENSOR_ALIGNMENT = 900, TENSOR_TYPE = 901,
	TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, TENSOR_ID = 906, TENSOR_VIRTUAL = 907, TENSOR_BY_VALUE = 908,
	VARIANTS_IDS = 1000, VARIANTS_POINTERS = 1001, VARIANTS_WORKSPACE = 1003, MATMUL_TYPE = 1500, OP_MATMUL_A = 1520, OP_MATMUL_B = 1521,
	OP_MATMUL_C = 1522, OP_MATMUL_DESC = 1523, REDUCTION_OPERATOR = 1600, REDUCTION_TYPE = 1601, OP_REDUCTION_X = 1610,
	OP_REDUCTION_Y = 1611, OP_REDUCTION_DESC = 1612, OP_RESHAPE_X = 2200, OP_RESHAPE_Y = 2201
};
enum {
	TYPE_HANDLE = 0, TYPE_DATA = 1, TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_POINTER = 6, TYPE_HEUR = 8, TYPE_POINTWISE = 14,
	TYPE_DESCRIPTOR = 15, TYPE_REDUCTION = 18
};
enum { HEUR_A = 3, MODE_GEN_INDEX = 501, NOT_SUPPORTED = 3000 };

enum { KIND_POINTWISE, KIND_MATMUL, KIND_REDUCTION, KIND_RESHAPE };

enum { MOST = 48, MOST_DESCRIPTORS = 4 * MOST }; // tensors or operations; all descriptors

// pp_dnn is a plan with all that it is made of.
struct pp_dnn {
	void *handle, *plan, *pack;
	void *descriptor[MOST_DESCRIPTORS]; // to be destroyed, the newest first
	int descriptors;
	float value[MOST];
	pp_ptr workspace;
};

#define TRY(call) \
	do { \
		if ((call) != 0) return -1; \
	} while (0)
#define DNN(name, ...) PP_CALL(PP_CUDNN, e, name, __VA_ARGS__)

int pp_dnn_create_handle(pp_context c, void **handle, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	DNN(cudnnCreate, handle);
	return 0;
}

int pp_dnn_destroy_handle(pp_context c, void *handle, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	DNN(cudnnDestroy, handle);
	return 0;
}

static int make(pp_dnn g, int type, void **d, pp_error *e) {
	if (g->descriptors == MOST_DESCRIPTORS) return pp_fail(e, PP_CUDNN, "cudnnBackendCreateDescriptor", NOT_SUPPORTED);
	DNN(cudnnBackendCreateDescriptor, type, d);
	g->descriptor[g->descriptors++] = *d;
	return 0;
}

static int set(void *d, int attribute, int type, int64_t n, const void *value, pp_error *e) {
	DNN(cudnnBackendSetAttribute, d, attribute, type, n, value);
	return 0;
}

static int finish(void *d, pp_error *e) {
	DNN(cudnnBackendFinalize, d);
	return 0;
}

// tensor makes the descriptor of a tensor; its number, from 1, is its id.
static int tensor(pp_dnn g, int64_t id, const pp_dnn_tensor *t, void **d, pp_error *e) {
	bool yes = true;
	int64_t alignment = 16; // cuMemAlloc's is 256
	TRY(make(g, DESC_TENSOR, d, e));
	TRY(set(*d, TENSOR_TYPE, TYPE_DATA, 1, &t->type, e));
	TRY(set(*d, TENSOR_DIMENSIONS, TYPE_INT64, 4, t->dims, e));
	TRY(set(*d, TENSOR_STRIDES, TYPE_INT64, 4, t->strides, e));
	TRY(set(*d, TENSOR_ID, TYPE_INT64, 1, &id, e));
	TRY(set(*d, TENSOR_ALIGNMENT, TYPE_INT64, 1, &alignment, e));
	if (t->virtual) TRY(set(*d, TENSOR_VIRTUAL, TYPE_BOOLEAN, 1, &yes, e));
	if (t->by_value) TRY(set(*d, TENSOR_BY_VALUE, TYPE_BOOLEAN, 1, &yes, e));
	return finish(*d, e);
}

// operation makes the descriptor of an operation.
static int operation(pp_dnn g, const pp_dnn_op *o, void *const *tensors, void **d, pp_error *e) {
	void *how = NULL;
	int64_t axis = o->axis;
	switch (o->kind) {
	case KIND_POINTWISE:
		TRY(make(g, DESC_POINTWISE, &how, e));
		TRY(set(how, POINTWISE_MODE, TYPE_POINTWISE, 1, &o->mode, e));
		TRY(set(how, POINTWISE_MATH, TYPE_DATA, 1, &o->type, e));
		if (o->mode == MODE_GEN_INDEX) TRY(set(how, POINTWISE_AXIS, TYPE_INT64, 1, &axis, e));
		TRY(finish(how, e));
		TRY(make(g, DESC_OP_POINTWISE, d, e));
		TRY(set(*d, OP_POINTWISE_PW, TYPE_DESCRIPTOR, 1, &how, e));
		TRY(set(*d, OP_POINTWISE_X, TYPE_DESCRIPTOR, 1, &tensors[o->x], e));
		if (o->b >= 0) TRY(set(*d, OP_POINTWISE_B, TYPE_DESCRIPTOR, 1, &tensors[o->b], e));
		if (o->t >= 0) TRY(set(*d, OP_POINTWISE_T, TYPE_DESCRIPTOR, 1, &tensors[o->t], e));
		TRY(set(*d, OP_POINTWISE_Y, TYPE_DESCRIPTOR, 1, &tensors[o->y], e));
		break;
	case KIND_MATMUL:
		TRY(make(g, DESC_MATMUL, &how, e));
		TRY(set(how, MATMUL_TYPE, TYPE_DATA, 1, &o->type, e));
		TRY(finish(how, e));
		TRY(make(g, DESC_OP_MATMUL, d, e));
		TRY(set(*d, OP_MATMUL_A, TYPE_DESCRIPTOR, 1, &tensors[o->x], e));
		TRY(set(*d, OP_MATMUL_B, TYPE_DESCRIPTOR, 1, &tensors[o->b], e));
		TRY(set(*d, OP_MATMUL_C, TYPE_DESCRIPTOR, 1, &tensors[o->y], e));
		TRY(set(*d, OP_MATMUL_DESC, TYPE_DESCRIPTOR, 1, &how, e));
		break;
	case KIND_REDUCTION:
		TRY(make(g, DESC_REDUCTION, &how, e));
		TRY(set(how, REDUCTION_OPERATOR, TYPE_REDUCTION, 1, &o->mode, e));
		TRY(set(how, REDUCTION_TYPE, TYPE_DATA, 1, &o->type, e));
		TRY(finish(how, e));
		TRY(make(g, DESC_OP_REDUCTION, d, e));
		TRY(set(*d, OP_REDUCTION_DESC, TYPE_DESCRIPTOR, 1, &how, e));
		TRY(set(*d, OP_REDUCTION_X, TYPE_DESCRIPTOR, 1, &tensors[o->x], e));
		TRY(set(*d, OP_REDUCTION_Y, TYPE_DESCRIPTOR, 1, &tensors[o->y], e));
		break;
	default:
		TRY(make(g, DESC_OP_RESHAPE, d, e));
		TRY(set(*d, OP_RESHAPE_X, TYPE_DESCRIPTOR, 1, &tensors[o->x], e));
		TRY(set(*d, OP_RESHAPE_Y, TYPE_DESCRIPTOR, 1, &tensors[o->y], e));
	}
	return finish(*d, e);
}

// plan makes the first plan of the heuristic's list that this GPU can run.
static int plan(pp_dnn g, void *graph, pp_error *e) {
	void *heuristic, *config;
	int mode = HEUR_A, code = NOT_SUPPORTED;
	int64_t count = 0, got = 0;
	TRY(make(g, DESC_ENGINEHEUR, &heuristic, e));
	TRY(set(heuristic, HEUR_GRAPH, TYPE_DESCRIPTOR, 1, &graph, e));
	TRY(set(heuristic, HEUR_MODE, TYPE_HEUR, 1, &mode, e));
	TRY(finish(heuristic, e));
	DNN(cudnnBackendGetAttribute, heuristic, HEUR_RESULTS, TYPE_DESCRIPTOR, 0, &count, NULL);
	void *configs[8]; // it lists the best first
	if (count > 8) count = 8;
	for (int i = 0; i < count; i++) TRY(make(g, DESC_ENGINECFG, &configs[i], e));
	if (count > 0) DNN(cudnnBackendGetAttribute, heuristic, HEUR_RESULTS, TYPE_DESCRIPTOR, count, &got, configs);
	for (int i = 0; i < got; i++) {
		config = configs[i];
		TRY(make(g, DESC_PLAN, &g->plan, e));
		TRY(set(g->plan, PLAN_HANDLE, TYPE_HANDLE, 1, &g->handle, e));
		TRY(set(g->plan, PLAN_ENGINECFG, TYPE_DESCRIPTOR, 1, &config, e));
		if ((code = pp.cudnnBackendFinalize(g->plan)) == 0) return 0;
	}
	return pp_fail(e, PP_CUDNN, got > 0 ? "cudnnBackendFinalize of the plan" : "the heuristic of cuDNN", code);
}

// fill does the work of pp_dnn_create.
static int fill(pp_dnn g, int tensors, const pp_dnn_tensor *t, int ops, const pp_dnn_op *o, pp_error *e) {
	void *td[MOST], *od[MOST], *graph, *pointers[MOST];
	int64_t ids[MOST], workspace = 0;
	int real = 0;
	for (int i = 0; i < tensors; i++) {
		TRY(tensor(g, i + 1, &t[i], &td[i], e));
		if (t[i].virtual) continue;
		g->value[i] = t[i].value;
		ids[real] = i + 1;
		pointers[real++] = t[i].by_value ? (void *)&g->value[i] : (void *)(uintptr_t)t[i].data;
	}
	for (int i = 0; i < ops; i++) TRY(operation(g, &o[i], td, &od[i], e));
	TRY(make(g, DESC_GRAPH, &graph, e));
	TRY(set(graph, GRAPH_OPS, TYPE_DESCRIPTOR, ops, od, e));
	TRY(set(graph, GRAPH_HANDLE, TYPE_HANDLE, 1, &g->handle, e));
	TRY(finish(graph, e));
	TRY(plan(g, graph, e));
	DNN(cudnnBackendGetAttribute, g->plan, PLAN_WORKSPACE, TYPE_INT64, 1, NULL, &workspace);
	if (workspace > 0) PP_CALL(PP_CUDA, e, cuMemAlloc_v2, &g->workspace, (size_t)workspace);
	void *w = (void *)(uintptr_t)g->workspace;
	TRY(make(g, DESC_VARIANTS, &g->pack, e));
	TRY(set(g->pack, VARIANTS_POINTERS, TYPE_POINTER, real, pointers, e));
	TRY(set(g->pack, VARIANTS_IDS, TYPE_INT64, real, ids, e));
	TRY(set(g->pack, VARIANTS_WORKSPACE, TYPE_POINTER, 1, &w, e));
	return finish(g->pack, e);
}

int pp_dnn_create(pp_context c, void *handle, int tensors, const pp_dnn_tensor *t, int ops, const pp_dnn_op *o, pp_dnn *g, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	if (tensors > MOST || ops > MOST || (*g = calloc(1, sizeof **g)) == NULL) return pp_fail(e, PP_CUDNN, "pp_dnn_create", NOT_SUPPORTED);
	(*g)->handle = handle;
	if (fill(*g, tensors, t, ops, o, e) == 0) return 0;
	pp_dnn_destroy(c, *g);
	*g = NULL;
	return -1;
}

void pp_dnn_destroy(pp_context c, pp_dnn g) {
	if (g == NULL || pp.cuCtxSetCurrent(c) != 0) return;
	while (g->descriptors > 0) pp.cudnnBackendDestroyDescriptor(g->descriptor[--g->descriptors]);
	if (g->workspace != 0) pp.cuMemFree_v2(g->workspace);
	free(g);
}

int pp_dnn_run(pp_context c, pp_stream s, const pp_dnn g, int n, pp_error *e) {
	PP_CALL(PP_CUDA, e, cuCtxSetCurrent, c);
	DNN(cudnnSetStream, g->handle, s);
	for (int i = 0; i < n; i++) DNN(cudnnBackendExecute, g->handle, g->plan, g->pack);
	return 0;
}
