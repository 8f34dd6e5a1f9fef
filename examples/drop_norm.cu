// Residual + dropout + layernorm: one block per row, the row in shared memory between the two passes.
//
// kmark: kernel drop_norm grid=x.rows block=256 shared=4*x.cols

extern "C" __global__ void drop_norm(const __grid_constant__ Args a) {
    extern __shared__ float row[];
    i64 i = blockIdx.x;
    float sum = 0;
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
        float kept = a.u.at(i, c) < float(P) ? 0.0f : up(a.x.at(i, c)) / float(1.0 - P);
        row[c] = up(a.r.at(i, c)) + kept;
        a.s.at(i, c) = down<s_t>(row[c]);
        sum += row[c];
    }
    float mean = block_sum(sum) / a.n;
    float squares = 0;
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
        squares += (row[c] - mean) * (row[c] - mean);
    }
    float scale = rsqrtf(block_sum(squares) / a.n + float(EPS));
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
        a.y.at(i, c) = down<y_t>((row[c] - mean) * scale * up(a.w.at(0, c)));
    }
}
