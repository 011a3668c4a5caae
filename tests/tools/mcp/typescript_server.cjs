// A server on the official TypeScript SDK that does what real ones do wrong: half of an emoji, one
// bad tool among thirteen, a flood of log lines. Run by tests: typescript_server.cjs PACKAGES
const { createRequire } = require("node:module");
const load = createRequire(`${process.argv[2]}/`);
const { Server } = load("@modelcontextprotocol/sdk/server/index.js");
const { StdioServerTransport } = load("@modelcontextprotocol/sdk/server/stdio.js");
const types = load("@modelcontextprotocol/sdk/types.js");

const capabilities = { tools: {}, logging: {} };
const server = new Server({ name: "typescript", version: "1" }, { capabilities });
const names = ["half", "flood", "bad", ...Array.from({ length: 10 }, (_, place) => `tool${place}`)];
const tools = names.map((name) => ({ name, inputSchema: { type: "object" } }));
tools[2].inputSchema = [];

server.setRequestHandler(types.ListToolsRequestSchema, () => ({ tools }));
server.setRequestHandler(types.CallToolRequestSchema, async ({ params }) => {
  if (params.name === "flood")
    for (let line = 0; line < 50_000; line++)
      await server.sendLoggingMessage({ level: "info", data: `line ${line}` });
  const text = params.name === "half" ? "a \ud83d b" : params.name;
  return { content: [{ type: "text", text }] };
});
server.connect(new StdioServerTransport());
