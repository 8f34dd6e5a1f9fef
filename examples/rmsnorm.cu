// RMSNorm as a user would bring it: kmark run rmsnorm --impl ./examples/rmsnorm.cu:mine
// kmark: kernel mine grid=m block=256

extern "C" __global__ void mine(const __grid_constant__ Args a) {
    i64 row = blockIdx.x;
    acc_t squares = 0;
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
        acc_t x = up(a.x.at(row, c));
        squares += x * x;
    }
    acc_t r = acc_t(1) / sqrt(block_sum(squares) / acc_t(a.n) + acc_t(EPS));
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
        a.y.at(row, c) = down<y_t>(up(a.x.at(row, c)) * r * acc_t(wide(a.w.ptr[c])));
    }
    if (RSTD && threadIdx.x == 0) a.rstd.ptr[row] = r;
}
