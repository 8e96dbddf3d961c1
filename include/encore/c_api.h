/* Encore as a shared library: open a model, submit prompts, read tokens as they come.
 *
 * libencore.so contains all that it needs but the C library and, for a GPU, what it opens at run time: the
 * driver and cuBLASLt. It exports the functions of this header and nothing else, so a program may use other
 * versions of the libraries that libencore.so contains, other compilers and other languages. encore/engine.h
 * wraps the same functions for C++ and adds no object code; examples/library/ shows C, C++ and Python.
 *
 * Errors: a function that returns a status never throws; encore_error_text() says what was wrong and what to do
 *   about it. Out parameters are written only where the function returns ENCORE_OK.
 * Threads: several threads may call the functions of one engine at once, until encore_close(). Only one thread
 *   at a time may call encore_next() for a request; any thread may call encore_abort() for it meanwhile.
 *   An engine has two threads of its own, for steps and for text; no code of yours runs on them.
 * Lifetime: a handle is yours until encore_close() or encore_release(). Requests may outlive their engine.
 *   A process that forks must open its engines after the fork. */
#ifndef ENCORE_C_API_H
#define ENCORE_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. The numbers 2 to 7 are also the exit codes of the executable `encore`. */
typedef enum encore_status {
  ENCORE_OK = 0,
  ENCORE_INTERNAL = 1,    /* unexpected: a fault of Encore's */
  ENCORE_USAGE = 2,       /* a wrong option, parameter or argument; a request that can never run */
  ENCORE_MODEL = 3,       /* the model's files cannot be used */
  ENCORE_UNSUPPORTED = 4, /* valid, but not something Encore does */
  ENCORE_COMPILE = 5,     /* the model's program does not compile */
  ENCORE_MEMORY = 6,      /* memory of the host or the device is exhausted */
  ENCORE_DEVICE = 7,      /* the device does not exist, or has failed */
  ENCORE_QUEUE_FULL = 8,  /* too many requests live now: try again later */
  ENCORE_DRAINING = 9     /* encore_drain() was called: no request is taken any more */
} encore_status;

/* Why a request ended. */
typedef enum encore_finish {
  ENCORE_FINISH_NONE = 0,    /* the request has not ended */
  ENCORE_FINISH_STOP = 1,    /* the model ended its text, or a stop string or token came */
  ENCORE_FINISH_LENGTH = 2,  /* max_tokens or the longest sequence is reached */
  ENCORE_FINISH_ABORTED = 3, /* encore_abort(), _release() or _close() was called */
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

/* A token, and the logarithm of its probability as the model gives it, before temperature and other
 * sampling parameters change it. */
typedef struct encore_candidate {
  int32_t token;
  float logprob;
} encore_candidate;

/* Says how likely a token was, and which tokens were the likeliest in its place, the likeliest first. */
typedef struct encore_logprobs {
  float logprob;
  int32_t rank; /* 1 where no token was likelier */
  const encore_candidate* top;
  size_t num_top;
} encore_logprobs;

/* Holds what a request got since the last encore_next(). Lifetime: until the next encore_next() for that request. */
typedef struct encore_update {
  const char* text; /* UTF-8, whole characters, zero-terminated; empty without a tokenizer */
  size_t text_bytes;
  const int32_t* tokens; /* also those that show no text, such as the end token */
  size_t num_tokens;
  const encore_logprobs* logprobs; /* one for each token; null where none were asked for */
  int64_t num_cached_tokens;       /* tokens of the prompt that the prefix cache had */
  encore_finish finish;
  const char* error; /* the reason for ENCORE_FINISH_ERROR; else empty */
} encore_update;

/* Holds counts since the start of the engine, and how many requests and pages there are now. The numbers are at
 * most one step old, but where a field says otherwise. */
typedef struct encore_statistics {
  int64_t num_running; /* requests that have a place in the steps */
  int64_t num_waiting; /* requests that wait for a place */
  int64_t num_pages;   /* pages of KV memory */
  int64_t num_free_pages;
  int64_t prompt_tokens;        /* prompt tokens of all requests taken */
  int64_t cached_prompt_tokens; /* those of them that the prefix cache had */
  int64_t generated_tokens;
  int64_t num_preemptions; /* requests that lost their pages for a while */
  int64_t num_steps;       /* at most a quarter of a second old */
  int64_t padding_tokens;  /* tokens that pad steps; as old as num_steps */
  int64_t num_finished[5]; /* requests that ended, one count for each encore_finish */
} encore_statistics;

/* Returns the version, such as "0.1.0". */
const char* encore_version(void);

/* Says in one line what was wrong in this thread's last call that did not return ENCORE_OK. Lifetime: until this
 * thread's next call that does not return ENCORE_OK. */
const char* encore_error_text(void);

/* Loads a model and waits until it takes requests, which takes milliseconds to minutes. The options are those of
 * `encore serve --help-all`, without those of the network and with _ in the place of -. Some of them are
 *   model           a checkpoint's directory, stories or stories-draft (which come along), synthetic:NAME for
 *                   random weights. Default: stories
 *   device          auto, cpu, cuda, cuda:N
 *   max_batch_size, max_seq_len, kv_tokens, graphs, chat_template, ...
 * Only warnings go to stderr; verbose says more. */
encore_status encore_open(const encore_setting* options, size_t num_options,
                          encore_engine** engine);

/* Aborts what still runs, waits for its end and gives all memory back. Null is ignored. No thread may use
 * the engine during this call or after it. */
void encore_close(encore_engine* engine);

/* Submits a prompt. Parameters:
 *   max_tokens           the most tokens to generate. Default: 200, or fewer where there is room for fewer
 *   min_tokens           tokens to generate before anything may end the text
 *   temperature, top_k, top_p, ...
 *                        the sampling parameters of `encore generate --help-all`, with _ in the place of -;
 *                        without them the likeliest token is taken
 *   stop                 a string that ends the text (a list)
 *   stop_token_ids       a token that ends the text (a list)
 *   include_stop_str_in_output  on: the text shows the string or token that ended it
 *   ignore_eos           on: go on where the model ends its text
 *   skip_special_tokens  off: the text shows special tokens
 *   priority             requests with lower numbers come first. Default: 0
 *   adapter              the name of the adapter (LoRA) that generates; the option lora (NAME=PATH, a list) or
 *                        encore_load_adapter() gave that name
 *   cache_salt           requests with different salts share no pages of the prefix cache
 *   logprobs             0 to 20: reports how likely each token was, and this number of likeliest tokens
 *   json_object          on: the text is a JSON object
 *   json_schema, regex, grammar  the text fits a JSON schema, a regular expression, or rules in EBNF with `root`
 *   choice               the text is one of these (a list)
 * At most one of the last five parameters (json_object to choice) may be given. It holds from the first token on; a
 * text that max_tokens cuts is the beginning of a text that fits. The call waits for the grammar to be compiled,
 * which happens once for all requests with the same grammar; ENCORE_QUEUE_FULL says that compiling took more than
 * two seconds. The prompt is UTF-8. It gets the tokens that the model puts in front of a text. To get several texts, submit
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

/* Waits until there is something new, for at most `timeout_ms` milliseconds: 0 does not wait, -1 waits without end.
 * An update without tokens, text and finish says that the time was over. Once `finish` is set it stays set, and
 * nothing more comes. Tokens that nobody reads are kept. */
encore_status encore_next(encore_request* request, int64_t timeout_ms, encore_update* update);

/* Ends a request soon, with ENCORE_FINISH_ABORTED. A request that has ended stays as it is. Null is ignored. */
void encore_abort(encore_request* request);

/* Gives a request's handle back. The request is aborted if it has not ended. Null is ignored. */
void encore_release(encore_request* request);

/* Loads an adapter (LoRA) while requests run: a directory as PEFT saves it, which requests may name from then on.
 * The engine needs room for adapters: the option max_loras, or lora. An adapter that has the name is
 * replaced where `replaces` is not 0; requests that already use the old adapter keep it. Returns when the files are
 * read.
 * Errors: ENCORE_USAGE for what the engine cannot take, with the reason. */
encore_status encore_load_adapter(encore_engine* engine, const char* name, const char* path,
                                  int replaces);

/* Takes an adapter's name away. Requests that already use the adapter keep it. */
encore_status encore_unload_adapter(encore_engine* engine, const char* name);

/* Takes no more requests from now on, and waits until all have ended, for at most `timeout_ms` as encore_next() waits.
 * `has_ended` is 1 if all have ended: statistics are then final, and what was not read can still be read. */
encore_status encore_drain(encore_engine* engine, int64_t timeout_ms, int* has_ended);

encore_status encore_get_statistics(const encore_engine* engine, encore_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
