// The openai package for Node: models, completions, chat and responses; streams, tools, schemas, errors.
import assert from 'node:assert/strict';
import test from 'node:test';

import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sk-of-nobody', maxRetries: 0 });
const stories = client(process.env.ENCORE_STORIES_URL);
const scripted = client(process.env.ENCORE_SCRIPTED_URL);

const QUESTION = [{ role: 'user', content: 'How is the weather?' }];
const STORY = { model: 'stories', messages: [{ role: 'user', content: 'Once upon a time' }], temperature: 0 };
const CONTENT = 'One moment, über 😀.';
const ANSWER = 'It is 12 degrees in Zürich.';
const WEATHER = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] };
const FUNCTIONS = [{ name: 'get_weather', parameters: WEATHER }, { name: 'get_time', parameters: { type: 'object', properties: {} } }];
const TOOLS = FUNCTIONS.map((tool) => ({ type: 'function', function: tool }));
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(99), mood: z.enum(['glad', 'sad']) });

test('models are listed and retrieved', async () => {
  const names = [];
  for await (const model of stories.models.list()) names.push(model.id);
  assert.deepEqual(names, ['stories']);
  assert.equal((await stories.models.retrieve('stories')).id, 'stories');
  await assert.rejects(stories.models.retrieve('none'), OpenAI.NotFoundError);
});

test('a stream of a completion joins to the whole', async () => {
  const body = { model: 'stories', prompt: 'Once upon a time', max_tokens: 20, temperature: 0 };
  const whole = await stories.completions.create(body);
  let text = '';
  let usage;
  for await (const event of await stories.completions.create({ ...body, stream: true, stream_options: { include_usage: true } })) {
    text += event.choices[0]?.text ?? '';
    usage = event.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].text);
  assert.deepEqual(usage, whole.usage);
});

test('a stream of a chat joins to the whole', async () => {
  const whole = await stories.chat.completions.create({ ...STORY, max_tokens: 20 });
  const final = await stories.chat.completions.stream({ ...STORY, max_tokens: 20 }).finalContent();
  assert.equal(final, whole.choices[0].message.content);
});

test('tools are called by the runner until there is an answer', async () => {
  const seen = [];
  const parsed = { function: { parse: JSON.parse } };
  const tools = FUNCTIONS.map((tool) => ({
    type: 'function',
    function: { ...tool, ...parsed.function, function: (value) => { seen.push([tool.name, value]); return '12 degrees'; } },
  }));
  for (const stream of [false, true]) {
    const runner = scripted.chat.completions.runTools({ model: 'scripted', messages: QUESTION, tools, stream });
    assert.equal(await runner.finalContent(), ANSWER);
  }
  const calls = [['get_weather', { city: 'Zürich', days: 2 }], ['get_time', {}]];
  assert.deepEqual(seen, [...calls, ...calls]);
});

test('streamed calls of tools join', async () => {
  const message = await scripted.chat.completions.stream({ model: 'scripted', messages: QUESTION, tools: TOOLS }).finalMessage();
  assert.equal(message.content, CONTENT);
  assert.deepEqual(message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    [['get_weather', { city: 'Zürich', days: 2 }], ['get_time', {}]]);
});

test('answers are parsed by their schema', async () => {
  const format = zodResponseFormat(Person, 'person');
  const chat = await stories.chat.completions.parse({ ...STORY, temperature: 1, max_tokens: 200, response_format: format });
  Person.parse(chat.choices[0].message.parsed);
  const response = await stories.responses.parse({
    model: 'stories', input: 'Who?', max_output_tokens: 200, text: { format: zodTextFormat(Person, 'person') },
  });
  Person.parse(response.output_parsed);
});

test('responses whole, streamed and with tools', async () => {
  const tools = FUNCTIONS.map((tool) => ({ type: 'function', strict: false, ...tool }));
  const stream = scripted.responses.stream({ model: 'scripted', input: 'How is the weather?', tools });
  let text = '';
  stream.on('response.output_text.delta', (event) => { text += event.delta; });
  const final = await stream.finalResponse();
  assert.equal(text, CONTENT);
  assert.equal(final.output_text, CONTENT);
  const calls = final.output.filter((item) => item.type === 'function_call');
  const results = calls.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: '12 degrees' }));
  const after = await scripted.responses.create({ model: 'scripted', input: [...QUESTION, ...final.output, ...results] });
  assert.equal(after.output_text, ANSWER);
});

test('errors have the classes of the client', async () => {
  await assert.rejects(stories.chat.completions.create({ ...STORY, bogus: 1 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === 'bogus');
});

test('a stream that is aborted does not disturb the next', async () => {
  const stream = await stories.completions.create({ model: 'stories', prompt: 'Once', max_tokens: 500, stream: true });
  for await (const event of stream) {
    assert.ok(event.choices);
    stream.controller.abort();
    break;
  }
  const next = await stories.completions.create({ model: 'stories', prompt: 'Once', max_tokens: 2 });
  assert.equal(next.usage.completion_tokens, 2);
});
