// The AI SDK of Vercel with its providers for servers like ours: text, streams, tools, objects.
import assert from 'node:assert/strict';
import test from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const storiesUrl = `${process.env.ENCORE_STORIES_URL}/v1`;
const scriptedUrl = `${process.env.ENCORE_SCRIPTED_URL}/v1`;
const compatible = (baseURL) => createOpenAICompatible({
  name: 'encore', baseURL, apiKey: 'sk-of-nobody', includeUsage: true, supportsStructuredOutputs: true,
});
const openai = (baseURL) => createOpenAI({ baseURL, apiKey: 'sk-of-nobody' });

// Each way to the two servers.
const PROVIDERS = {
  'openai-compatible': [compatible(storiesUrl).chatModel('stories'), compatible(scriptedUrl).chatModel('scripted')],
  'openai chat': [openai(storiesUrl).chat('stories'), openai(scriptedUrl).chat('scripted')],
  'openai responses': [openai(storiesUrl).responses('stories'), openai(scriptedUrl).responses('scripted')],
};
const Person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(99) });
const ANSWER = 'It is 12 degrees in Zürich.';
const STORY = { prompt: 'Once upon a time', maxOutputTokens: 20, temperature: 0, maxRetries: 0 };

for (const [name, [stories, scripted]] of Object.entries(PROVIDERS)) {
  test(`${name}: a stream joins to the whole`, async () => {
    const whole = await generateText({ model: stories, ...STORY });
    const stream = streamText({ model: stories, ...STORY });
    let text = '';
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, 20);
    assert.equal(await stream.finishReason, 'length');
  });

  test(`${name}: tools are called until there is an answer`, async () => {
    const seen = [];
    const tools = {
      get_weather: tool({
        description: 'Says it',
        inputSchema: z.object({ city: z.string(), days: z.number().int().optional() }),
        execute: async (input) => { seen.push(['get_weather', input]); return '12 degrees'; },
      }),
      get_time: tool({ inputSchema: z.object({}), execute: async (input) => { seen.push(['get_time', input]); return 'noon'; } }),
    };
    const body = {
      model: scripted, tools, prompt: 'How is the weather?', stopWhen: stepCountIs(4), maxRetries: 0,
      providerOptions: { openai: { store: false } }, // else it refers to items that are stored
    };
    const whole = await generateText(body);
    assert.equal(whole.text, ANSWER);
    assert.equal(whole.steps.length, 2);
    const stream = streamText(body);
    assert.equal(await stream.text, ANSWER);
    const calls = [['get_weather', { city: 'Zürich', days: 2 }], ['get_time', {}]];
    assert.deepEqual(seen, [...calls, ...calls]);
    assert.ok((await stream.steps)[0].text.includes('über 😀'));
  });

  test(`${name}: objects fit their schema`, async () => {
    const { output } = await generateText({
      model: stories, output: Output.object({ schema: Person }), prompt: 'Who?', maxOutputTokens: 200, maxRetries: 0,
    });
    Person.parse(output);
    const stream = streamText({
      model: stories, output: Output.object({ schema: Person }), prompt: 'Who?', maxOutputTokens: 200, maxRetries: 0,
    });
    Person.parse(await stream.output);
  });
}

test('openai-compatible: reasoning is apart from the text', async () => {
  const answer = await generateText({ model: PROVIDERS['openai-compatible'][1], prompt: 'It is 12 degrees', maxRetries: 0 });
  assert.equal(answer.reasoningText, 'I know.');
});

test('openai-compatible: completions', async () => {
  const model = compatible(storiesUrl).completionModel('stories');
  assert.ok((await generateText({ model, ...STORY })).text.length > 0);
});
