/* Streams one text.
 *   stream_c [MODEL [PROMPT]] */
#include <stdio.h>
#include <string.h>

#include <encore/c_api.h>

static int report(encore_status status) {
  fprintf(stderr, "stream_c: %s\n", encore_error_text());
  return status;
}

/* Prints what the request gets until it ends. */
static encore_status print_all(encore_request* request) {
  encore_update update;
  do {
    const encore_status status = encore_next(request, -1, &update);
    if (status != ENCORE_OK) return status;
    fwrite(update.text, 1, update.text_bytes, stdout);
    fflush(stdout);
  } while (update.finish == ENCORE_FINISH_NONE);
  putchar('\n');
  return ENCORE_OK;
}

int main(int argc, char** argv) {
  const encore_setting options[] = {{"model", argc > 1 ? argv[1] : "stories"}};
  const encore_setting parameters[] = {{"max_tokens", "60"}};
  const char* prompt = argc > 2 ? argv[2] : "Once upon a time";
  encore_engine* engine = NULL;
  encore_request* request = NULL;

  encore_status status = encore_open(options, 1, &engine);
  if (status != ENCORE_OK) return report(status);
  status = encore_submit_text(engine, prompt, strlen(prompt), parameters, 1, &request);
  if (status == ENCORE_OK) {
    fputs(prompt, stdout);
    status = print_all(request);
  }
  if (status != ENCORE_OK) report(status);
  encore_release(request);
  encore_close(engine);
  return status;
}
