// A stand-in for cuDNN's backend: graphs are really computed, in double precision, an
// operation after the other as their descriptors say.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(code) \
	do { \
		const char *f = getenv("PERFPLAN_STANDIN_FAIL"); \
		if (f != NULL && strcmp(f, __func__) == 0) return code; \
	} while (0)

enum { HEURISTIC = 4, PLAN = 5, OP_POINTWISE = 13, TENSOR = 17, OP_MATMUL = 19, OP_REDUCTION = 22, OP_RESHAPE = 31 };

struct desc {
	int kind;
	bool done;
	struct { int name, type; int64_t n; void *data; } a[16];
	int attributes;
	struct desc *graph; // of an engine configuration
	// of a tensor while a graph runs
	int type;
	bool virtual;
	int64_t dims[4], strides[4];
	void *data;
};

static void *at(struct desc *d, int name) {
	for (int i = 0; d != NULL && i < d->attributes; i++)
		if (d->a[i].name == name) return d->a[i].data;
	return NULL;
}
static int64_t count(struct desc *d, int name) {
	for (int i = 0; i < d->attributes; i++)
		if (d->a[i].name == name) return d->a[i].n;
	return 0;
}
static struct desc *ref(struct desc *d, int name) {
	void **p = at(d, name);
	return p != NULL ? *p : NULL;
}

size_t cudnnGetVersion(void) { return 91400; }
const char *cudnnGetErrorString(int c) { return c == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM"; }
void cudnnGetLastErrorString(char *s, size_t n) { snprintf(s, n, "no engine\n  for it"); }
int cudnnCreate(void **h) { *h = calloc(1, sizeof(void *)); return 0; }
int cudnnDestroy(void *h) { free(h); return 0; }
int cudnnSetStream(void *h, void *s) { *(void **)h = s; return 0; }

int cudnnBackendCreateDescriptor(int kind, void **d) {
	struct desc *x = calloc(1, sizeof *x);
	x->kind = kind;
	*d = x;
	return 0;
}
int cudnnBackendDestroyDescriptor(void *d) {
	struct desc *x = d;
	for (int i = 0; i < x->attributes; i++) free(x->a[i].data);
	free(x);
	return 0;
}
int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *v) {
	struct desc *x = d;
	size_t width = type == 2 ? 1 : type == 0 || type == 3 || type == 6 || type == 15 ? 8 : 4;
	if (x->done || x->attributes == 16 || n < 1) return 2000;
	for (int64_t i = 0; type == 15 && i < n; i++)
		if (!((struct desc *const *)v)[i]->done) return 2004;
	x->a[x->attributes].name = name, x->a[x->attributes].type = type, x->a[x->attributes].n = n;
	x->a[x->attributes].data = memcpy(malloc(n * width), v, n * width);
	x->attributes++;
	return 0;
}
int cudnnBackendFinalize(void *d) {
	struct desc *x = d;
	if (x->kind == PLAN) FAIL(3000);
	if (x->kind == TENSOR) {
		if (count(x, 902) != 4 || count(x, 903) != 4 || at(x, 906) == NULL || at(x, 901) == NULL) return 2000;
		memcpy(x->dims, at(x, 902), sizeof x->dims);
		memcpy(x->strides, at(x, 903), sizeof x->strides);
		x->type = *(int *)at(x, 901);
		x->virtual = at(x, 907) != NULL;
	}
	x->done = true;
	return 0;
}
int cudnnBackendGetAttribute(void *d, int name, int type, int64_t want, int64_t *got, void *v) {
	struct desc *x = d;
	if (!x->done) return 2004;
	if (x->kind == HEURISTIC && name == 202 && *(int *)at(x, 200) == 3) {
		*got = 1;
		if (want < 1) return 0;
		struct desc *config = *(void **)v;
		config->graph = ref(x, 201);
		config->done = true;
		return 0;
	}
	if (x->kind == PLAN && name == 402) {
		*(int64_t *)v = 64;
		return 0;
	}
	return 2000;
}

static double half(uint16_t h) {
	int e = h >> 10 & 31;
	double m = e == 0 ? (h & 1023) / 1024.0 : 1 + (h & 1023) / 1024.0;
	return (h >> 15 ? -1 : 1) * ldexp(m, (e == 0 ? 1 : e) - 15);
}
static int64_t place(struct desc *t, const int64_t *i) {
	int64_t at = 0;
	for (int k = 0; k < 4; k++) at += (t->dims[k] == 1 ? 0 : i[k]) * t->strides[k];
	return at;
}
static double get(struct desc *t, int64_t at) {
	if (t->virtual) return ((double *)t->data)[at];
	if (t->type == 0) return ((float *)t->data)[at];
	uint16_t h = ((uint16_t *)t->data)[at];
	if (t->type == 2) return half(h);
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static void put(struct desc *t, int64_t at, double v) {
	if (t->virtual) {
		((double *)t->data)[at] = v;
	} else if (t->type == 0) {
		((float *)t->data)[at] = (float)v;
	} else { // bf16
		float f = (float)v;
		uint32_t u;
		memcpy(&u, &f, 4);
		((uint16_t *)t->data)[at] = (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
	}
}

#define EACH(i, dims) \
	for (i[0] = 0; i[0] < (dims)[0]; i[0]++) \
		for (i[1] = 0; i[1] < (dims)[1]; i[1]++) \
			for (i[2] = 0; i[2] < (dims)[2]; i[2]++) \
				for (i[3] = 0; i[3] < (dims)[3]; i[3]++)

static int pointwise(struct desc *o) {
	struct desc *how = ref(o, 750), *x = ref(o, 751), *b = ref(o, 752), *y = ref(o, 753), *t = ref(o, 758);
	int mode = *(int *)at(how, 0);
	int64_t i[4];
	EACH(i, y->dims) {
		double u = get(x, place(x, i)), v = b != NULL ? get(b, place(b, i)) : 0, r;
		switch (mode) {
		case 0: r = u + v; break;
		case 1: r = u * v; break;
		case 6: r = u / v; break;
		case 9: r = u - v; break;
		case 13: r = exp(u); break;
		case 15: r = log(u); break;
		case 21: r = u; break;
		case 303: r = u >= v; break;
		case 501: r = i[*(int64_t *)at(how, 9)]; break;
		case 601: r = get(t, place(t, i)) != 0 ? u : v; break;
		default: return 3000;
		}
		put(y, place(y, i), r);
	}
	return 0;
}
static int matmul(struct desc *o) {
	struct desc *a = ref(o, 1520), *b = ref(o, 1521), *c = ref(o, 1522);
	int64_t i[4];
	if (a->dims[3] != b->dims[2] || a->dims[2] != c->dims[2] || b->dims[3] != c->dims[3]) return 2008;
	EACH(i, c->dims) {
		double sum = 0;
		for (int64_t k = 0; k < a->dims[3]; k++) {
			int64_t p[4] = {i[0], i[1] * a->dims[1] / c->dims[1], i[2], k}, q[4] = {i[0], i[1] * b->dims[1] / c->dims[1], k, i[3]};
			sum += get(a, place(a, p)) * get(b, place(b, q));
		}
		put(c, place(c, i), sum);
	}
	return 0;
}
static int reduction(struct desc *o) {
	struct desc *how = ref(o, 1612), *x = ref(o, 1610), *y = ref(o, 1611);
	int mode = *(int *)at(how, 1600);
	int64_t i[4], p[4];
	EACH(i, y->dims) {
		int64_t n[4];
		double r = mode == 3 ? -INFINITY : 0;
		for (int k = 0; k < 4; k++) n[k] = x->dims[k] / y->dims[k];
		EACH(p, n) {
			int64_t q[4];
			for (int k = 0; k < 4; k++) q[k] = i[k] * n[k] + p[k];
			double v = get(x, place(x, q));
			r = mode == 3 ? fmax(r, v) : r + v;
		}
		put(y, place(y, i), r);
	}
	return 0;
}
static int reshape(struct desc *o) { // sees the same memory
	struct desc *x = ref(o, 2200), *y = ref(o, 2201);
	int64_t i[4];
	EACH(i, y->dims) put(y, place(y, i), get(x, place(y, i)));
	return 0;
}

// ready gives a tensor its memory.
static int ready(struct desc *t, struct desc *pack) {
	int64_t *ids = at(pack, 1000), id = *(int64_t *)at(t, 906);
	if (t->virtual) {
		int64_t size = 1;
		for (int k = 0; k < 4; k++) size += (t->dims[k] - 1) * t->strides[k];
		free(t->data);
		t->data = calloc(size, sizeof(double));
		return 0;
	}
	for (int64_t i = 0; i < count(pack, 1000); i++)
		if (ids[i] == id) t->data = ((void **)at(pack, 1001))[i];
	return t->data == NULL ? 2002 : 0;
}

int cudnnBackendExecute(void *h, void *plan, void *pack) {
	FAIL(5000);
	struct desc *graph = ref(plan, 401)->graph;
	struct desc **ops = at(graph, 801);
	static const int inputs[] = {751, 752, 758, 1520, 1521, 1610, 2200}, outputs[] = {753, 1522, 1611, 2201};
	if (*(void **)h == NULL || *(void **)at(pack, 1003) == NULL) return 2000;
	for (int64_t k = 0; k < count(graph, 801); k++) {
		struct desc *o = ops[k], *t;
		for (int j = 0; j < 7; j++)
			if ((t = ref(o, inputs[j])) != NULL && (t->virtual ? t->data == NULL : ready(t, pack) != 0)) return 2002; // read before it is written
		for (int j = 0; j < 4; j++)
			if ((t = ref(o, outputs[j])) != NULL && ready(t, pack) != 0) return 2002;
		int code = o->kind == OP_POINTWISE ? pointwise(o) : o->kind == OP_MATMUL ? matmul(o) : o->kind == OP_REDUCTION ? reduction(o) : o->kind == OP_RESHAPE ? reshape(o) : 3000;
		if (code != 0) return code;
	}
	for (int64_t k = 0; k < count(graph, 801); k++)
		for (int j = 0; j < 4; j++) {
			struct desc *t = ref(ops[k], outputs[j]);
			if (t != NULL && t->virtual) free(t->data), t->data = NULL;
		}
	return 0;
}
