// Truth of rows times a number.
// kmark: kernel judge grid=min(ceil(m*n,256),32*sms) block=256

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> judge(a.y_gate);
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < a.m * a.n; i += (i64)gridDim.x * blockDim.x) {
        double y = wide(a.a.ptr[0]) * wide(a.x.at(i / a.n, i % a.n));
        judge.put(i / a.n, i % a.n, y, unit<acc_t>() * fabs(y), 0);
    }
    judge.finish();
}
