// Kernels of the shapes that training runs, compiled on the machine by NVRTC. Each
// follows the way its PyTorch counterpart moves data: elements of a thread, widths of
// loads, index arithmetic, reductions. No header is needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(16) vec16 { u32 w[4]; };
struct alignas(16) float4v { float f[4]; };
struct alignas(8) half4v { u16 h[4]; };

__device__ __forceinline__ float up(u16 h) { return __uint_as_float((u32)h << 16); }

__device__ __forceinline__ u16 down(float f) {
#if __CUDA_ARCH__ >= 800
	u16 h;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
#else
	u32 u = __float_as_uint(f);
	return (u16)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
#endif
}

// ---- random data ----

// A counter through a mixing function (splitmix64), two uniform numbers of it through
// Box and Muller's formula.
__device__ __forceinline__ float2 normal2(u64 i) {
	u64 z = (i + 1) * 0x9E3779B97F4A7C15ull;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	z ^= z >> 31;
	float u = ((u32)z + 1.0f) * (1.0f / 4294967808.0f), v = (u32)(z >> 32) * (1.0f / 4294967296.0f);
	float r = sqrtf(-2.0f * __logf(u)), s, c;
	__sincosf(6.2831853f * v, &s, &c);
	return make_float2(r * c, r * s);
}

// Types of random data: 0 bf16, 1 fp16, 2 fp32, 3 fp8 e4m3.
extern "C" __global__ void fill_normal(void *out, i64 pairs, int type, u64 seed) {
	i64 stride = (i64)gridDim.x * blockDim.x;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += stride) {
		float2 v = normal2((u64)i + seed);
		if (type == 0) {
			((u32 *)out)[i] = (u32)down(v.x) | (u32)down(v.y) << 16;
		} else if (type == 1) {
			u16 a, b;
			asm("cvt.rn.f16.f32 %0, %1;" : "=h"(a) : "f"(v.x));
			asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(v.y));
			((u32 *)out)[i] = (u32)a | (u32)b << 16;
		} else if (type == 2) {
			((float2 *)out)[i] = v;
		} else {
#if __CUDA_ARCH__ >= 890
			u16 h;
			asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(v.y), "f"(v.x));
			((u16 *)out)[i] = h;
#endif
		}
	}
}

// ---- elementwise, contiguous: vectors of 16 bytes, two for a thread ----

__device__ __forceinline__ vec16 add2(vec16 a, vec16 b) {
	vec16 c;
#pragma unroll
	for (int k = 0; k < 4; k++)
		c.w[k] = (u32)down(up((u16)a.w[k]) + up((u16)b.w[k])) | (u32)down(up((u16)(a.w[k] >> 16)) + up((u16)(b.w[k] >> 16))) << 16;
	return c;
}

__device__ __forceinline__ vec16 scale2(vec16 a, float s) {
	vec16 c;
#pragma unroll
	for (int k = 0; k < 4; k++) c.w[k] = (u32)down(up((u16)a.w[k]) * s) | (u32)down(up((u16)(a.w[k] >> 16)) * s) << 16;
	return c;
}

extern "C" __global__ void __launch_bounds__(128) copy_any(const vec16 *__restrict__ x, vec16 *__restrict__ y, i64 n) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	vec16 a, b;
	if (i < n) a = x[i];
	if (j < n) b = x[j];
	if (i < n) y[i] = a;
	if (j < n) y[j] = b;
}

extern "C" __global__ void __launch_bounds__(128) add_bf16(const vec16 *__restrict__ x, const vec16 *__restrict__ y, vec16 *__restrict__ z, i64 n) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	vec16 a, b, c, d;
	if (i < n) a = x[i], c = y[i];
	if (j < n) b = x[j], d = y[j];
	if (i < n) z[i] = add2(a, c);
	if (j < n) z[j] = add2(b, d);
}

extern "C" __global__ void __launch_bounds__(128) add_fp32(const float4v *__restrict__ x, const float4v *__restrict__ y, float4v *__restrict__ z, i64 n) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	float4v a, b, c, d;
	if (i < n) a = x[i], c = y[i];
	if (j < n) b = x[j], d = y[j];
#pragma unroll
	for (int k = 0; k < 4; k++) a.f[k] += c.f[k], b.f[k] += d.f[k];
	if (i < n) z[i] = a;
	if (j < n) z[j] = b;
}

extern "C" __global__ void __launch_bounds__(128) rmw_bf16(vec16 *x, i64 n, float s) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	vec16 a, b;
	if (i < n) a = x[i];
	if (j < n) b = x[j];
	if (i < n) x[i] = scale2(a, s);
	if (j < n) x[j] = scale2(b, s);
}

extern "C" __global__ void __launch_bounds__(128) rmw_fp32(float4v *x, i64 n, float s) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	float4v a, b;
	if (i < n) a = x[i];
	if (j < n) b = x[j];
#pragma unroll
	for (int k = 0; k < 4; k++) a.f[k] *= s, b.f[k] *= s;
	if (i < n) x[i] = a;
	if (j < n) x[j] = b;
}

// fp32 to bf16; n vectors of four elements.
extern "C" __global__ void __launch_bounds__(128) cast_down(const float4v *__restrict__ x, half4v *__restrict__ y, i64 n) {
	i64 i = (i64)blockIdx.x * 256 + threadIdx.x, j = i + 128;
	float4v a, b;
	half4v c, d;
	if (i < n) a = x[i];
	if (j < n) b = x[j];
#pragma unroll
	for (int k = 0; k < 4; k++) c.h[k] = down(a.f[k]), d.h[k] = down(b.f[k]);
	if (i < n) y[i] = c;
	if (j < n) y[j] = d;
}

// ---- elementwise with types known at run time: single elements, four for a thread ----

enum { T_U8, T_I8, T_I16, T_I32, T_I64, T_F32, T_F64, T_BF16, T_BOOL };

__device__ __forceinline__ float fetch(const u8 *p, u32 i, int type) {
	switch (type) {
	case T_U8: return (float)p[i];
	case T_I8: return (float)((const signed char *)p)[i];
	case T_I16: return (float)((const short *)p)[i];
	case T_I32: return (float)((const int *)p)[i];
	case T_I64: return (float)((const i64 *)p)[i];
	case T_F32: return ((const float *)p)[i];
	case T_F64: return (float)((const double *)p)[i];
	case T_BF16: return up(((const u16 *)p)[i]);
	case T_BOOL: return p[i] != 0 ? 1.0f : 0.0f;
	}
	return 0.0f;
}

extern "C" __global__ void __launch_bounds__(128) cast_up(const u8 *__restrict__ x, float *__restrict__ y, u32 n, int type) {
	u32 base = blockIdx.x * 512 + threadIdx.x;
	float v[4];
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (base + k * 128 < n) v[k] = fetch(x, base + k * 128, type);
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (base + k * 128 < n) y[base + k * 128] = v[k];
}

// ---- elementwise, broadcast or strided: offsets by division, four elements a thread ----

struct divider { u32 divisor, magic, shift; };
struct offsets {
	int dims;
	divider size[12];
	u32 stride[12][3]; // bytes, by operand: result first
};

__device__ __forceinline__ void place(const offsets &o, u32 i, u32 (&at)[3]) {
	at[0] = at[1] = at[2] = 0;
#pragma unroll
	for (int d = 0; d < 12; d++) {
		if (d == o.dims) break;
		u32 q = (__umulhi(i, o.size[d].magic) + i) >> o.size[d].shift, r = i - q * o.size[d].divisor;
		i = q;
#pragma unroll
		for (int k = 0; k < 3; k++) at[k] += r * o.stride[d][k];
	}
}

#define STRIDED(name, expression, type) \
	extern "C" __global__ void __launch_bounds__(128) name(offsets o, u32 n, u8 *y, const u8 *a, const u8 *b) { \
		u32 i = blockIdx.x * 512 + threadIdx.x; \
		_Pragma("unroll") for (int k = 0; k < 4; k++, i += 128) { \
			if (i < n) { \
				u32 at[3]; \
				place(o, i, at); \
				type *z = (type *)(y + at[0]); \
				const type *p = (const type *)(a + at[1]), *q = (const type *)(b + at[2]); \
				*z = expression; \
			} \
		} \
	}

STRIDED(strided_bf16, down(up(*p) * up(*q)), u16)
STRIDED(strided_fp32, *p **q, float)

extern "C" __global__ void __launch_bounds__(128) slice_bf16(offsets o, u32 n, u8 *y, const u8 *a) {
	u32 i = blockIdx.x * 512 + threadIdx.x;
#pragma unroll
	for (int k = 0; k < 4; k++, i += 128) {
		if (i < n) {
			u32 at[3];
			place(o, i, at);
			*(u16 *)(y + at[0]) = *(const u16 *)(a + at[1]);
		}
	}
}

// Two halves side by side in the rows of a result; grid y is the half.
extern "C" __global__ void __launch_bounds__(512) concat_bf16(const u16 *a, const u16 *b, u16 *y, u32 rows, u32 half, u32 heads) {
	const u16 *x = blockIdx.y == 0 ? a : b;
	u32 n = rows * heads * half, stride = gridDim.x * blockDim.x;
	for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		u32 c = i % half, t = i / half, h = t % heads, r = t / heads;
		y[(r * heads + h) * 2 * half + blockIdx.y * half + c] = x[i];
	}
}

// ---- reductions ----

__device__ __forceinline__ float block_sum(float v, float *shared) {
	for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
	if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
	__syncthreads();
	if (threadIdx.x < 32) {
		v = threadIdx.x < (blockDim.x >> 5) ? shared[threadIdx.x] : 0.0f;
		for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
		if (threadIdx.x == 0) shared[0] = v;
	}
	__syncthreads();
	v = shared[0];
	__syncthreads();
	return v;
}

__device__ __forceinline__ float block_max(float v, float *shared) {
	for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, d));
	if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
	__syncthreads();
	if (threadIdx.x < 32) {
		v = threadIdx.x < (blockDim.x >> 5) ? shared[threadIdx.x] : -3.4e38f;
		for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, d));
		if (threadIdx.x == 0) shared[0] = v;
	}
	__syncthreads();
	v = shared[0];
	__syncthreads();
	return v;
}

// Mean of each row of fp32; width in vectors of four, one block a row.
extern "C" __global__ void __launch_bounds__(512) reduce_row(const float4v *__restrict__ x, float *__restrict__ y, int width) {
	__shared__ float shared[32];
	const float4v *row = x + (i64)blockIdx.x * width;
	float sum = 0;
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v v = row[i];
		sum += v.f[0] + v.f[1] + v.f[2] + v.f[3];
	}
	sum = block_sum(sum, shared);
	if (threadIdx.x == 0) y[blockIdx.x] = sum / (4.0f * width);
}

// Sum of each column of bf16, four columns a thread; grid y splits the rows.
extern "C" __global__ void __launch_bounds__(512) reduce_col(const half4v *__restrict__ x, float *__restrict__ y, int width, int rows) {
	__shared__ float shared[16][32][4];
	int c = blockIdx.x * 32 + threadIdx.x;
	float sum[4] = {0, 0, 0, 0};
	if (c < width) {
#pragma unroll 4
		for (int r = blockIdx.y * 16 + threadIdx.y; r < rows; r += gridDim.y * 16) {
			half4v v = x[(i64)r * width + c];
#pragma unroll
			for (int k = 0; k < 4; k++) sum[k] += up(v.h[k]);
		}
	}
	for (int k = 0; k < 4; k++) shared[threadIdx.y][threadIdx.x][k] = sum[k];
	__syncthreads();
	if (threadIdx.y == 0 && c < width) {
		for (int r = 1; r < 16; r++)
			for (int k = 0; k < 4; k++) sum[k] += shared[r][threadIdx.x][k];
		for (int k = 0; k < 4; k++) atomicAdd(y + 4 * c + k, sum[k]);
	}
}

// Log-softmax of each row of fp32: maximum, sum, result; one block a row.
extern "C" __global__ void __launch_bounds__(1024) softmax_forward(const float4v *__restrict__ x, float4v *__restrict__ y, int width) {
	__shared__ float shared[32];
	const float4v *row = x + (i64)blockIdx.x * width;
	float4v *out = y + (i64)blockIdx.x * width;
	float m = -3.4e38f, sum = 0;
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v v = row[i];
		m = fmaxf(m, fmaxf(fmaxf(v.f[0], v.f[1]), fmaxf(v.f[2], v.f[3])));
	}
	m = block_max(m, shared);
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v v = row[i];
#pragma unroll
		for (int k = 0; k < 4; k++) sum += expf(v.f[k] - m);
	}
	float z = m + logf(block_sum(sum, shared));
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v v = row[i];
#pragma unroll
		for (int k = 0; k < 4; k++) v.f[k] -= z;
		out[i] = v;
	}
}

// Its gradient: dx = dy − exp(y)·sum(dy).
extern "C" __global__ void __launch_bounds__(1024) softmax_backward(const float4v *__restrict__ dy, const float4v *__restrict__ y, float4v *__restrict__ dx, int width) {
	__shared__ float shared[32];
	i64 at = (i64)blockIdx.x * width;
	float sum = 0;
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v g = dy[at + i];
		sum += g.f[0] + g.f[1] + g.f[2] + g.f[3];
	}
	sum = block_sum(sum, shared);
	for (int i = threadIdx.x; i < width; i += blockDim.x) {
		float4v g = dy[at + i], v = y[at + i];
#pragma unroll
		for (int k = 0; k < 4; k++) g.f[k] -= expf(v.f[k]) * sum;
		dx[at + i] = g;
	}
}

// ---- optimizer: blocks of 65536 elements, four at a time ----

__device__ __forceinline__ void adam(float &p, float g, float &m, float &v, float lr, float decay) {
	p *= 1.0f - lr * decay;
	m = 0.9f * m + 0.1f * g;
	v = 0.999f * v + 0.001f * g * g;
	p -= lr * m / (sqrtf(v) + 1e-8f);
}

extern "C" __global__ void __launch_bounds__(512) adam_fp32(float4v *p, const float4v *g, float4v *m, float4v *v, i64 n, float lr, float decay) {
	i64 begin = (i64)blockIdx.x * 16384, end = begin + 16384 < n ? begin + 16384 : n;
	for (i64 i = begin + threadIdx.x; i < end; i += 512) {
		float4v a = p[i], b = g[i], c = m[i], d = v[i];
#pragma unroll
		for (int k = 0; k < 4; k++) adam(a.f[k], b.f[k], c.f[k], d.f[k], lr, decay);
		p[i] = a, m[i] = c, v[i] = d;
	}
}

extern "C" __global__ void __launch_bounds__(512) adam_bf16(half4v *p, const half4v *g, half4v *m, half4v *v, i64 n, float lr, float decay) {
	i64 begin = (i64)blockIdx.x * 16384, end = begin + 16384 < n ? begin + 16384 : n;
	for (i64 i = begin + threadIdx.x; i < end; i += 512) {
		half4v a = p[i], b = g[i], c = m[i], d = v[i];
#pragma unroll
		for (int k = 0; k < 4; k++) {
			float x = up(a.h[k]), y = up(c.h[k]), z = up(d.h[k]);
			adam(x, up(b.h[k]), y, z, lr, decay);
			a.h[k] = down(x), c.h[k] = down(y), d.h[k] = down(z);
		}
		p[i] = a, m[i] = c, v[i] = d;
	}
}

// ---- launches ----

extern "C" __global__ void nothing() {}

// Spins for so many cycles and adds the time from its first instruction to its last.
extern "C" __global__ void spin(u64 cycles, u64 *nanoseconds) {
	u64 start, end;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	i64 begin = clock64();
	while ((u64)(clock64() - begin) < cycles) {}
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
	*nanoseconds += end - start;
}
