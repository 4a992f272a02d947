/* Says tokens with a backend; what is counted when instructions are counted.
 *   say_tokens FOLDER BACKEND PL_LIBRARY THREADS TOKENS
 *
 * It comes by three marks, so that a counter can tell opening and closing from a token, and in a token the work that is
 * done behind a stream from the work that the token waits for: `token_ended`, `stream_ended`, `stream_runs`. */
#include <stdio.h>
#include <stdlib.h>

#include "image_options.h"
#include "runtime.h"

static tf_circuits behind;
static const tf_image *image;
static uint32_t rows_of_port_0;

/* Marks for the counter: empty, but not left out. */
void token_ended(void);
void stream_ended(void);
void stream_runs(void);
__attribute__((noinline)) void token_ended(void) { __asm__ volatile(""); }
__attribute__((noinline)) void stream_ended(void) { __asm__ volatile(""); }
__attribute__((noinline)) void stream_runs(void) { __asm__ volatile(""); }

static tf_status marked_matvec_start(void *self, uint32_t layer, uint32_t group) {
    tf_status status = behind.matvec_start(self, layer, group);
    rows_of_port_0 = tf_port_rows(tf_group_rows(&image->header, group), 0); /* never fewer than port 1 has */
    stream_runs();
    return status;
}

static tf_status marked_matvec_wait(void *self, uint32_t rows) {
    tf_status status = behind.matvec_wait(self, rows);
    if (rows >= rows_of_port_0) stream_ended();
    return status;
}

static tf_status marked_attention_start(void *self, uint32_t layer, uint32_t positions, const int32_t *m) {
    tf_status status = behind.attention_start(self, layer, positions, m);
    stream_runs();
    return status;
}

static tf_status marked_attention_wait(void *self) {
    tf_status status = behind.attention_wait(self);
    stream_ended();
    return status;
}

static void mark_streams(tf_runtime *runtime) {
    behind = runtime->circuits;
    image = &runtime->image;
    runtime->circuits.matvec_start = marked_matvec_start;
    runtime->circuits.matvec_wait = marked_matvec_wait;
    runtime->circuits.attention_start = marked_attention_start;
    runtime->circuits.attention_wait = marked_attention_wait;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    tf_options options = image_options(arguments[1], arguments[2], arguments[3]);
    options.threads = (uint32_t)atoi(arguments[4]);
    tf_runtime *runtime;
    const float *logits;
    tf_status status = tf_open(&options, &runtime);
    if (status == TF_OK) mark_streams(runtime);
    for (int i = 0; i < atoi(arguments[5]) && status == TF_OK; i++) {
        stream_ended();
        status = tf_forward(runtime, (uint32_t)i + 1, &logits);
        token_ended();
    }
    if (status != TF_OK) {
        fprintf(stderr, "%s\n", tf_last_error());
        return 1;
    }
    tf_close(runtime);
    return 0;
}
