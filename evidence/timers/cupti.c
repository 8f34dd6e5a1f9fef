// Writes start, end and name of every kernel that the process runs, as CUPTI saw them, into $KMARK_CUPTI/<pid>.txt.
// Loaded by the driver itself: CUDA_INJECTION64_PATH=./libcupti_trace.so kmark run …
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *out;

static void take(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 4 << 20;
    *buffer = aligned_alloc(8, *size);
    *records = 0;
}

static void done(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    for (CUpti_Activity *record = NULL; cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS;) {
        const CUpti_ActivityKernel9 *kernel = (const CUpti_ActivityKernel9 *)record;
        fprintf(out, "%llu %llu %s\n", (unsigned long long)kernel->start, (unsigned long long)kernel->end, kernel->name);
    }
    free(buffer);
}

static void flush(void) {
    cuptiActivityFlushAll(1);
    fclose(out);
}

int InitializeInjection(void) {
    char path[4096];
    const char *folder = getenv("KMARK_CUPTI");
    snprintf(path, sizeof path, "%s/%d.txt", folder ? folder : ".", (int)getpid());
    out = fopen(path, "w");
    if (!out) return 0;
    cuptiActivityRegisterCallbacks(take, done);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    atexit(flush);
    return 1;
}
