// Prints the schemas that zod makes of models, by name: see write_models.py.
import { createRequire } from "node:module";

const { z } = createRequire(`${process.env.NODE_PATH ?? "."}/`)("zod");

const address = z.object({ street: z.string(), city: z.string().default("Paris"), zip: z.string().regex(/^\d{5}(-\d{4})?$/) });
const text = z.object({ type: z.literal("text"), text: z.string() });
const image = z.object({ type: z.literal("image"), url: z.url() });
const node = z.object({
  name: z.string(),
  get children() {
    return z.array(node);
  },
});
const named = z.object({ id: z.int().positive() }).meta({ id: "a/b~c" });

const models = {
  person: z.object({
    name: z.string().min(1).max(50), age: z.number().int().min(0).max(130), email: z.email().optional(), address,
    nickname: z.string().nullable(),
  }),
  union: z.discriminatedUnion("type", [text, image]),
  "plain union": z.union([z.string(), z.number(), z.array(z.boolean())]),
  formats: z.object({
    id: z.uuid(), at: z.iso.datetime(), day: z.iso.date(), time: z.iso.time(), mail: z.email(), site: z.url(),
    ip: z.ipv4(), bytes: z.base64(), short: z.nanoid(), span: z.iso.duration(),
  }),
  numbers: z.object({ a: z.number().gt(0).lt(1), b: z.int().multipleOf(5), c: z.number().nonnegative(), d: z.int32() }),
  strings: z.object({
    prefix: z.string().startsWith("a."), suffix: z.string().endsWith('"'), part: z.string().includes("\\"),
    low: z.string().lowercase(), exact: z.string().length(3), template: z.templateLiteral(["v", z.int(), "-", z.enum(["a", "b"])]),
  }),
  collections: z.object({
    pair: z.tuple([z.string(), z.number()]), rest: z.tuple([z.string()], z.number()), map: z.record(z.string(), z.number()),
    keyed: z.record(z.enum(["x", "y"]), z.boolean()), list: z.array(z.string().max(5)).min(1).max(3),
  }),
  recursive: node,
  strict: z.strictObject({ a: z.literal([1, "two", null]), b: z.enum(["x", "y z"]).default("x") }),
  loose: z.looseObject({ a: z.boolean() }),
  intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
  "named parts": z.object({ first: named, second: named.optional() }),
  described: z.object({ when: z.string().describe("free text"), any: z.any(), unknown: z.unknown().optional() }),
};

const schemas = {};
for (const [name, model] of Object.entries(models)) schemas[name] = z.toJSONSchema(model);
console.log(JSON.stringify(schemas));
