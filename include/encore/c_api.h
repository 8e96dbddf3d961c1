/* Encore as a shared library: open a model, submit prompts, read tokens as they come.
 *
 * libencore.so contains all that it needs but the C library and, for a GPU, what it opens at run time: the
 * driver and cuBLASLt. It exports the functions of this header and nothing else, so programs may use other
 * versions of the libraries in it, other compilers and other languages. encore/engine.h has the same for C++
 * and adds no object code; examples/library/ has both, and Python.
 *
 * Errors: a function that returns a status never throws; encore_error_text() says what was wrong and what to do
 *   about it. Out parameters are written where it returns ENCORE_OK.
 * Threads: functions of an engine may be called from any threads at once, until encore_close(). Of a request,
 *   one thread at a time calls encore_next(); encore_abort() may come from any thread meanwhile.
 *   An engine has two threads of its own, for steps and for text; no code of yours runs on them.
 * Lifetime: a handle is yours until encore_close() or encore_release(). Requests may outlive their engine.
 *   A process that forks opens its engines behind the fork. */
#ifndef ENCORE_C_API_H
#define ENCORE_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 2 to 7 are also the exit codes of the executable `encore`. */
typedef enum encore_status {
  ENCORE_OK = 0,
  ENCORE_INTERNAL = 1,    /* unexpected: a fault of Encore's */
  ENCORE_USAGE = 2,       /* a wrong option, parameter or argument; a request that can never run */
  ENCORE_MODEL = 3,       /* the model's files cannot be used */
  ENCORE_UNSUPPORTED = 4, /* valid, but not something Encore does */
  ENCORE_COMPILE = 5,     /* the model's program does not compile */
  ENCORE_MEMORY = 6,      /* memory of the host or the device is exhausted */
  ENCORE_DEVICE = 7,      /* the device is not there, or has failed */
  ENCORE_QUEUE_FULL = 8,  /* too many requests live: later there may be room */
  ENCORE_DRAINING = 9     /* encore_drain() was called: no request is taken any more */
} encore_status;

/* Why a request ended. */
typedef enum encore_finish {
  ENCORE_FINISH_NONE = 0,    /* it goes on */
  ENCORE_FINISH_STOP = 1,    /* the model ended its text, or a stop string or token came */
  ENCORE_FINISH_LENGTH = 2,  /* max_tokens, or the model's longest sequence */
  ENCORE_FINISH_ABORTED = 3, /* encore_abort(), encore_release() or encore_close() */
  ENCORE_FINISH_ERROR = 4    /* the device failed, or no token fitted the request's grammar */
} encore_finish;

typedef struct encore_engine encore_engine;
typedef struct encore_request encore_request;

/* An option of an engine, or a parameter of a request: a name and a value as text, zero-terminated UTF-8.
 * Numbers are decimal, switches "on" or "off". A name whose value is a list comes once for each element. */
typedef struct encore_setting {
  const char* name;
  const char* value;
} encore_setting;

/* A token, and the logarithm of its probability as the model gives it, before temperature and what else changes it. */
typedef struct encore_candidate {
  int32_t token;
  float logprob;
} encore_candidate;

/* How likely a token was, and which ones were the likeliest in its place, in that order. */
typedef struct encore_logprobs {
  float logprob;
  int32_t rank; /* 1: no token was likelier */
  const encore_candidate* top;
  size_t num_top;
} encore_logprobs;

/* What a request got since the last encore_next(). Lifetime: until the next call for that request. */
typedef struct encore_update {
  const char* text; /* UTF-8, whole characters, zero-terminated; empty without a tokenizer */
  size_t text_bytes;
  const int32_t* tokens; /* with those that show no text, such as the end of a text */
  size_t num_tokens;
  const encore_logprobs* logprobs; /* one for each token, if asked for; else null */
  int64_t num_cached_tokens;       /* of the prompt, found in the prefix cache */
  encore_finish finish;
  const char* error; /* of ENCORE_FINISH_ERROR; else empty */
} encore_update;

/* Counts since the start, and how many there are now. A snapshot, a step old at most. */
typedef struct encore_statistics {
  int64_t num_running; /* requests that have a place in the steps */
  int64_t num_waiting; /* requests that wait for one */
  int64_t num_pages;   /* of KV memory */
  int64_t num_free_pages;
  int64_t prompt_tokens;        /* of all requests taken */
  int64_t cached_prompt_tokens; /* of those, found in the prefix cache */
  int64_t generated_tokens;
  int64_t num_preemptions; /* requests that lost their pages for a while */
  int64_t num_steps;       /* a quarter of a second old at most, as is the next */
  int64_t padding_tokens;  /* that steps had besides their own */
  int64_t num_finished[5]; /* requests that ended, by encore_finish */
} encore_statistics;

/* "0.1.0". */
const char* encore_version(void);

/* What was wrong in this thread's last call that did not return ENCORE_OK, in a line. Lifetime: until the
 * thread's next such call. */
const char* encore_error_text(void);

/* Loads a model, and waits until it takes requests: milliseconds to minutes. Options are those of
 * `encore serve --help-all` with _ for -, but for those of the network, such as
 *   model           a checkpoint's directory, stories or stories-draft (which come along), synthetic:NAME for
 *                   random weights. Default: stories
 *   device          auto, cpu, cuda, cuda:N
 *   max_batch_size, max_seq_len, kv_tokens, graphs, chat_template, ...
 * Only warnings go to stderr; verbose says more. */
encore_status encore_open(const encore_setting* options, size_t num_options,
                          encore_engine** engine);

/* Aborts what still runs, waits for its end and gives all memory back. Null is ignored. Nobody else may use
 * the engine then or later. */
void encore_close(encore_engine* engine);

/* Submits a prompt. Parameters:
 *   max_tokens           tokens to generate at most. Default: 200, or what there is room for
 *   min_tokens           nothing ends the text within so many
 *   temperature, top_k, top_p, ...
 *                        the sampling parameters of `encore generate --help-all`, with _ for -; without, the
 *                        likeliest token is taken
 *   stop                 a string that ends the text (a list)
 *   stop_token_ids       a token that ends the text (a list)
 *   include_stop_str_in_output  on: the text shows the string or token that ended it
 *   ignore_eos           on: go on where the model ends its text
 *   skip_special_tokens  off: the text shows special tokens
 *   priority             requests with lower numbers come first. Default: 0
 *   adapter              the adapter (LoRA) that generates, by its name: of the option lora (NAME=PATH, a list), or
 *                        of encore_load_adapter()
 *   cache_salt           requests with different ones share no pages of the prefix cache
 *   logprobs             0 to 20: tells how likely each token was, and so many of the likeliest in its place
 *   json_object          on: the text is a JSON object
 *   json_schema, regex, grammar  the text fits it: a JSON schema, a regular expression, or rules in EBNF with `root`
 *   choice               the text is one of these (a list)
 * One of the last five at most holds a text, from its first token on; cut by max_tokens it is a part of one that
 * fits. Such a call waits for the grammar to be compiled, once for all who give the same: ENCORE_QUEUE_FULL says
 * that this took more than two seconds.
 * The prompt is UTF-8, and gets the tokens that the model puts in front of a text. To get several texts, submit
 * it with several seeds: the prompt is computed once.
 * Errors: ENCORE_USAGE also for a model without a tokenizer. */
encore_status encore_submit_text(encore_engine* engine, const char* prompt, size_t prompt_bytes,
                                 const encore_setting* parameters, size_t num_parameters,
                                 encore_request** request);

/* Submits a prompt as token ids, which are taken as they are. */
encore_status encore_submit_tokens(encore_engine* engine, const int32_t* tokens, size_t num_tokens,
                                   const encore_setting* parameters, size_t num_parameters,
                                   encore_request** request);

/* Submits a conversation, from which the model's chat template makes the prompt: a JSON array of messages as
 * /v1/chat/completions takes them, [{"role": "user", "content": "Hello"}]. A further parameter:
 *   chat_template_kwargs  a JSON object, further variables of the template, such as {"enable_thinking": false}
 * Errors: ENCORE_USAGE also for a model without a chat template, and for messages that it refuses. */
encore_status encore_submit_chat(encore_engine* engine, const char* messages, size_t messages_bytes,
                                 const encore_setting* parameters, size_t num_parameters,
                                 encore_request** request);

/* Waits until there is something new, or for `timeout_ms`: 0 not at all, -1 without end. An update without
 * tokens, text and finish says that the time was over. Once `finish` is set it stays so, and no more comes.
 * Tokens that nobody reads are kept. */
encore_status encore_next(encore_request* request, int64_t timeout_ms, encore_update* update);

/* Ends a request soon, with ENCORE_FINISH_ABORTED; one that has ended stays as it is. Null is ignored. */
void encore_abort(encore_request* request);

/* Gives a request back; it is aborted if it has not ended. Null is ignored. */
void encore_release(encore_request* request);

/* Loads an adapter (LoRA) while requests run: a directory as PEFT saves it, which requests may name from then on.
 * The engine needs room for adapters: the option max_loras, or lora. An adapter of that name is replaced where
 * `replaces` is not 0; requests that have it keep it. Returns when the files are read.
 * Errors: ENCORE_USAGE for what the engine cannot take, with the reason. */
encore_status encore_load_adapter(encore_engine* engine, const char* name, const char* path,
                                  int replaces);

/* Takes an adapter's name away; requests that have it keep it. */
encore_status encore_unload_adapter(encore_engine* engine, const char* name);

/* Takes no more requests from now on, and waits until all have ended, or for `timeout_ms` as encore_next()
 * does. `has_ended` is 1 if they have: what was not read can still be, and statistics are final. */
encore_status encore_drain(encore_engine* engine, int64_t timeout_ms, int* has_ended);

encore_status encore_get_statistics(const encore_engine* engine, encore_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
