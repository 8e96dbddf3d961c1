"""Encore in Python: a thin layer over libencore.so, by ctypes alone. encore/c_api.h says what everything means.

    with encore.Engine(model="stories") as engine:
        for update in engine.submit("Once upon a time", max_tokens=100, temperature=0.8):
            print(update.text, end="", flush=True)

Waiting releases Python's lock, so other threads go on.
"""

import ctypes
import dataclasses
import json
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p

FINISHES = (None, "stop", "length", "aborted", "error")


class Error(Exception):
    """What went wrong and what to do about it; `status` is an encore_status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class _Candidate(ctypes.Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class _Logprobs(ctypes.Structure):
    _fields_ = [("logprob", c_float), ("rank", c_int32), ("top", POINTER(_Candidate)), ("num_top", c_size_t)]


class _Update(ctypes.Structure):
    _fields_ = [("text", c_void_p), ("text_bytes", c_size_t), ("tokens", POINTER(c_int32)), ("num_tokens", c_size_t),
                ("logprobs", POINTER(_Logprobs)), ("num_cached_tokens", c_int64), ("finish", c_int), ("error", c_char_p)]


class Statistics(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in (
        "num_running", "num_waiting", "num_pages", "num_free_pages", "prompt_tokens", "cached_prompt_tokens",
        "generated_tokens", "num_preemptions", "num_steps", "padding_tokens")] + [("num_finished", c_int64 * 5)]


@dataclasses.dataclass
class Logprobs:
    """How likely a token was, its rank, and the likeliest tokens of its place as (token, logprob)."""

    logprob: float
    rank: int
    top: list


@dataclasses.dataclass
class Update:
    """What a request got; `finish` is set in the last one: stop, length, aborted or error."""

    text: str
    tokens: list
    logprobs: list  # of Logprobs, one for each token, where the request has `logprobs`
    num_cached_tokens: int
    finish: str | None
    error: str


def _load(path):
    """The library at `path`, else at $ENCORE_LIBRARY, else where the system looks."""
    library = ctypes.CDLL(os.fspath(path or os.environ.get("ENCORE_LIBRARY", "libencore.so")))
    settings = [POINTER(_Setting), c_size_t]
    for name, arguments in {
            "encore_open": [*settings, POINTER(c_void_p)],
            "encore_submit_text": [c_void_p, c_char_p, c_size_t, *settings, POINTER(c_void_p)],
            "encore_submit_tokens": [c_void_p, POINTER(c_int32), c_size_t, *settings, POINTER(c_void_p)],
            "encore_submit_chat": [c_void_p, c_char_p, c_size_t, *settings, POINTER(c_void_p)],
            "encore_load_adapter": [c_void_p, c_char_p, c_char_p, c_int],
            "encore_unload_adapter": [c_void_p, c_char_p],
            "encore_next": [c_void_p, c_int64, POINTER(_Update)],
            "encore_drain": [c_void_p, c_int64, POINTER(c_int)],
            "encore_get_statistics": [c_void_p, POINTER(Statistics)]}.items():
        getattr(library, name).argtypes = arguments
    for name in ("encore_close", "encore_abort", "encore_release"):
        getattr(library, name).argtypes = [c_void_p]
        getattr(library, name).restype = None
    library.encore_error_text.restype = library.encore_version.restype = c_char_p
    return library


def _settings(settings):
    """A C array of them. Booleans become on and off; a list gives its name once for each element."""
    rows = []
    for name, value in settings.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            text = {True: "on", False: "off"}[each] if isinstance(each, bool) else str(each)
            rows.append(_Setting(name.encode(), text.encode()))
    return (_Setting * len(rows))(*rows), len(rows)


def _token_ids(ids):
    """A C array of them; ctypes by itself would take an id that does not fit modulo 2**32."""
    for index in ids:
        if not -2**31 <= index < 2**31:
            raise ValueError(f"token id {index} does not fit 32 bits")
    return (c_int32 * len(ids))(*ids)


def _milliseconds(timeout):
    return -1 if timeout is None else round(timeout * 1000)


class Request:
    """A prompt and what is generated behind it; iterating gives its updates as they come."""

    def __init__(self, library, handle):
        self._library = library
        self._handle = handle
        self.has_ended = False
        self._last = None  # the update that came last

    def __del__(self):
        self._library.encore_release(self._handle)

    def next(self, timeout=None):
        """Waits for an update, `timeout` seconds at most; None: the time was over, or the request ended before."""
        if self.has_ended:
            return None
        raw = _Update()
        _check(self._library, self._library.encore_next(self._handle, _milliseconds(timeout), byref(raw)))
        self.has_ended = raw.finish != 0
        if not (self.has_ended or raw.num_tokens or raw.text_bytes):
            return None
        rows = raw.logprobs[:raw.num_tokens] if raw.logprobs else []
        logprobs = [Logprobs(row.logprob, row.rank, [(each.token, each.logprob) for each in row.top[:row.num_top]]) for row in rows]
        self._last = Update(ctypes.string_at(raw.text, raw.text_bytes).decode(), raw.tokens[:raw.num_tokens], logprobs,
                            raw.num_cached_tokens, FINISHES[raw.finish], raw.error.decode())
        return self._last

    def __iter__(self):
        return iter(self.next, None)

    def wait(self):
        """Everything that was not read yet, once the request has ended: nothing but how, where all was read."""
        updates = list(self)
        last = updates[-1] if updates else dataclasses.replace(self._last, text="", tokens=[], logprobs=[])
        return dataclasses.replace(last, text="".join(update.text for update in updates),
                                   tokens=[token for update in updates for token in update.tokens],
                                   logprobs=[row for update in updates for row in update.logprobs])

    def abort(self):
        self._library.encore_abort(self._handle)


class Engine:
    """A model that takes requests. Options are those of `encore serve`, with _ for -."""

    def __init__(self, library=None, **options):
        self._handle = c_void_p()
        self._library = _load(library)
        _check(self._library, self._library.encore_open(*_settings(options), byref(self._handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def submit(self, prompt, **parameters):
        """Submits a text, a list of token ids, or a conversation as a list of {"role": ..., "content": ...}."""
        request = c_void_p()
        if isinstance(prompt, str):
            data = prompt.encode()
            function = self._library.encore_submit_text
        elif prompt and isinstance(prompt[0], dict):
            data = json.dumps(prompt).encode()
            function = self._library.encore_submit_chat
        else:
            data = _token_ids(prompt)
            function = self._library.encore_submit_tokens
        _check(self._library, function(self._handle, data, len(data), *_settings(parameters), byref(request)))
        return Request(self._library, request)

    def load_adapter(self, name, path, replaces=False):
        """Loads an adapter (LoRA) from a directory; submit(..., adapter=name) generates with it."""
        _check(self._library, self._library.encore_load_adapter(self._handle, name.encode(), os.fsencode(path), int(replaces)))

    def unload_adapter(self, name):
        """Takes an adapter's name away; requests that have it keep it."""
        _check(self._library, self._library.encore_unload_adapter(self._handle, name.encode()))

    def drain(self, timeout=None):
        """Takes no more requests, and waits for the end of all, `timeout` seconds at most. Have they ended?"""
        has_ended = c_int()
        _check(self._library, self._library.encore_drain(self._handle, _milliseconds(timeout), byref(has_ended)))
        return bool(has_ended.value)

    def statistics(self):
        statistics = Statistics()
        _check(self._library, self._library.encore_get_statistics(self._handle, byref(statistics)))
        return statistics

    def close(self):
        self._library.encore_close(self._handle)
        self._handle = c_void_p()


def _check(library, status):
    if status != 0:
        raise Error(status, library.encore_error_text().decode())
