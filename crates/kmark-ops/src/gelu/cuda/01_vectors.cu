// A vector per thread. The normal distribution's tail is a power of two whose exponent is a polynomial: one
// exponential and eight multiply-adds, few enough for the memory to be the limit.
// kmark: constants m,n
// kmark: let LANES = 16/size
// kmark: let V = m*n<=sms*1024?min(4,LANES):LANES
// kmark: let LEAD = memory.unaligned&&V>1
// kmark: let JOINED = m==1||!memory.strided
// kmark: let VECTORS = JOINED?ceil(m*n+LEAD,V):m*ceil(n+LEAD,V)
// kmark: let LARGE = 2*m*n*size>8*l2
// kmark: let THREADS = 256
// kmark: kernel gelu grid=ceil(VECTORS,THREADS) block=THREADS
#include "fast_exp.cuh"
#include "map.cuh"

// Tail of the normal distribution above h >= 0, off by 1e-8: weighted minimax fit of its logarithm to base 2. The
// absolute error is what counts, since x times it is added to x or to 0. Beyond the fit it goes to 0.
DEVICE float tail(float h) {
    float q = -2.7720496e-6f;
    q = fmaf(q, h, 3.862075e-5f);
    q = fmaf(q, h, -1.8254762e-4f);
    q = fmaf(q, h, -1.4587012e-4f);
    q = fmaf(q, h, 7.0754718e-3f);
    q = fmaf(q, h, -5.2505028e-2f);
    q = fmaf(q, h, -4.5920491e-1f);
    q = fmaf(q, h, -1.1511058f);
    q = fmaf(q, h, -1.0f);
    return exp2_fast(q);
}
DEVICE float by_erf(float x) { return fmaf(-fabsf(x), tail(fabsf(x)), fmaxf(x, 0.0f)); }
DEVICE double by_erf(double x) { return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)); }

// x / (1 + exp(-2 z)), z = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double TWICE_ROOT = 1.59576912160573071176, CUBE = 0.044715;
DEVICE float by_tanh(float x) {
    constexpr double log2_e = 1.44269504088896340736;
    float exponent = x * fmaf(float(-TWICE_ROOT * CUBE * log2_e), x * x, float(-TWICE_ROOT * log2_e));
    return x * inverse_fast(1.0f + exp2_fast(exponent));
}
DEVICE double by_tanh(double x) { return x / (1.0 + exp(-TWICE_ROOT * (x + CUBE * x * x * x))); }

KERNEL __launch_bounds__(THREADS) gelu(const __grid_constant__ Args a) {
    const Rows<const x_t> in[1] = {rows_of(a.x)};
    const Rows<y_t> out[1] = {rows_of(a.y)};
    Tiles<y_t, M, N, JOINED, V, LEAD, THREADS> tiles;
    map_tiles<LARGE != 0>(tiles, in, out, [](const acc_t (&x)[1], acc_t (&y)[1]) {
        y[0] = APPROX == APPROX_erf ? by_erf(x[0]) : by_tanh(x[0]);
    });
}
