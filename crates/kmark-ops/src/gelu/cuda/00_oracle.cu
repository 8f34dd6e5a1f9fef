// Truth of GELU, element by element.
// kmark: kernel judge grid=min(ceil(m*n,256),32*sms) block=256
#include "loose_truth.cuh"

constexpr double SQRT_2 = 1.41421356237309504880, FRAC_1_SQRT_2 = 0.70710678118654752440;
constexpr double FRAC_2_SQRT_PI = 1.12837916709551257390;
// Factor of the cube in the tanh form, and sqrt(2 / pi), its other factor.
constexpr double CUBE = 0.044715, ROOT = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

// By erfc and by a quotient of exponentials: the sums with 1 would cancel for negative x.
DEVICE double by_erf(double x) { return 0.5 * x * erfc(-x / SQRT_2); }
DEVICE double by_tanh(double x) {
    double z = ROOT * (x + CUBE * x * x * x);
    return x / (1.0 + exp(-2.0 * z));
}

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> judge(a.y_gate);
    double u = unit<acc_t>();
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < a.m * a.n; i += (i64)gridDim.x * blockDim.x) {
        double x = wide(a.x.at(i / a.n, i % a.n)), y = APPROX == APPROX_erf ? by_erf(x) : by_tanh(x);
        // erf or tanh off by four units (a polynomial of 1.5e-7, or a quotient within two units of a number up to 2) and
        // by one or two more for its rounded argument, then the sum with 1: about twelve units, times x / 2, whether or
        // not the sum cancels. Then the products.
        double slack = u * (6.0 * fabs(x) + 3.0 * fabs(y));
        // Rounded on the way: the factor of x, and a product.
        double loose = rounding<y_t>(y) + rounding<y_t>(x == 0.0 ? 0.5 : y / x) * fabs(x);
        judge.put(i / a.n, i % a.n, y, slack, 0, loose);
    }
    judge.finish();
}
