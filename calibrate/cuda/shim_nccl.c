//go:build cgo && linux

#include "shim.h"

#include <string.h>

#define NC(name, ...) PP_CALL(PP_NCCL, e, name, __VA_ARGS__)

enum { SUM = 0 }; // ncclRedOp_t

int pp_nccl_new_id(pp_nccl_id *id, pp_error *e) {
	NC(ncclGetUniqueId, id);
	return 0;
}

// The calls between group start and end are of one thread: a group is the thread's.
int pp_nccl_join(pp_group *g, const pp_nccl_id *id, pp_error *e) {
	NC(ncclGroupStart);
	int code = 0, cuda = 0;
	for (int i = 0; i < g->members && code == 0 && cuda == 0; i++) {
		cuda = pp.cuCtxSetCurrent(g->context[i]);
		if (cuda == 0) code = pp.ncclCommInitRank(&g->comm[i], g->ranks, *id, g->rank[i]);
	}
	int end = pp.ncclGroupEnd(); // closes the group also after a failure
	if (cuda != 0) return pp_fail(e, PP_CUDA, "cuCtxSetCurrent", cuda);
	if (code != 0) return pp_fail(e, PP_NCCL, "ncclCommInitRank", code);
	if (end != 0) return pp_fail(e, PP_NCCL, "ncclGroupEnd (ncclCommInitRank)", end);
	return 0;
}

// One after the other, as nccl-tests does: the last of a process frees what they share.
int pp_nccl_leave(pp_group *g, pp_error *e) {
	int code = 0;
	for (int i = 0; i < g->members; i++) {
		if (g->comm[i] == NULL) continue;
		int c = pp.cuCtxSetCurrent(g->context[i]);
		if (c != 0) return pp_fail(e, PP_CUDA, "cuCtxSetCurrent", c);
		c = pp.ncclCommDestroy(g->comm[i]);
		if (code == 0) code = c;
		g->comm[i] = NULL;
	}
	return code == 0 ? 0 : pp_fail(e, PP_NCCL, "ncclCommDestroy", code);
}

// one queues an operation for a member.
static int one(const pp_group *g, const pp_collective *k, int i) {
	const char *in = (const char *)(uintptr_t)k->in[i];
	char *out = (char *)(uintptr_t)k->out[i];
	size_t part = k->count / (size_t)g->ranks;
	pp_comm c = g->comm[i];
	pp_stream s = g->stream[i];
	int code = 0;
	switch (k->op) {
	case 0: return pp.ncclAllReduce(in, out, k->count, k->type, SUM, c, s);
	case 1: return pp.ncclAllGather(in, out, part, k->type, c, s);
	case 2: return pp.ncclReduceScatter(in, out, part, k->type, SUM, c, s);
	case 3: // as PyTorch does it
		for (int r = 0; r < g->ranks && code == 0; r++) {
			code = pp.ncclSend(in + (size_t)r * part * k->width, part, k->type, r, c, s);
			if (code == 0) code = pp.ncclRecv(out + (size_t)r * part * k->width, part, k->type, r, c, s);
		}
		return code;
	case 4: return pp.ncclBroadcast(in, out, k->count, k->type, 0, c, s);
	case 5: // even ranks send to the next, odd ones receive
		if (g->rank[i] % 2 == 0) return g->rank[i] + 1 < g->ranks ? pp.ncclSend(in, k->count, k->type, g->rank[i] + 1, c, s) : 0;
		return pp.ncclRecv(out, k->count, k->type, g->rank[i] - 1, c, s);
	}
	return 4; // ncclInvalidArgument
}

int pp_nccl_run(const pp_group *g, const pp_collective *k, int n, pp_error *e) {
	for (int repeat = 0; repeat < n; repeat++) {
		NC(ncclGroupStart);
		int code = 0, cuda = 0;
		for (int i = 0; i < g->members && code == 0 && cuda == 0; i++) {
			cuda = pp.cuCtxSetCurrent(g->context[i]);
			if (cuda == 0) code = one(g, k, i);
		}
		int end = pp.ncclGroupEnd();
		if (cuda != 0) return pp_fail(e, PP_CUDA, "cuCtxSetCurrent", cuda);
		if (code != 0) return pp_fail(e, PP_NCCL, "collective", code);
		if (end != 0) return pp_fail(e, PP_NCCL, "ncclGroupEnd (collective)", end);
	}
	return 0;
}
