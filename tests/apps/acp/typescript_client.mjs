// An editor over the official TypeScript SDK: one whole task. Run by test_typescript_client.py.
//   node typescript_client.mjs SDK_MODULE FOLDER COMMAND...
// Prints one JSON object: what it has seen.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";

const [sdk, folder, program, ...rest] = process.argv.slice(2);
const acp = await import(sdk);
const { agent, client } = acp.methods;

async function withAgent(work) {
  const seen = { updates: [], permissions: [], written: [], listeners: [] };
  const child = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"], cwd: folder });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await acp
    .client({ name: "test" })
    .onRequest(client.session.requestPermission, async ({ params }) => {
      seen.permissions.push(params);
      const chosen = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: chosen.optionId } };
    })
    .onRequest(client.fs.readTextFile, async ({ params }) => ({
      content: await readFile(params.path, "utf8"),
    }))
    .onRequest(client.fs.writeTextFile, async ({ params }) => {
      seen.written.push(params.path);
      await writeFile(params.path, params.content);
      return {};
    })
    .onNotification(client.session.update, ({ params }) => {
      seen.updates.push(params.update);
      for (const listener of seen.listeners) listener();
    })
    .connectWith(stream, async (context) => {
      const initialized = await context.request(agent.initialize, {
        protocolVersion: acp.PROTOCOL_VERSION,
        clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
      });
      return { initialized, ...(await work(context, seen)) };
    });
  child.stdin.end();
  return { ...result, exitCode: await ended };
}

function until(seen, condition) {
  return new Promise((resolve) => {
    const look = () => seen.updates.some(condition) && resolve();
    seen.listeners.push(look);
    look();
  });
}

const say = (text) => [{ type: "text", text }];
const text = (updates) =>
  updates
    .filter((update) => update.sessionUpdate === "agent_message_chunk")
    .map((update) => update.content.text)
    .join("");

const first = await withAgent(async (context, seen) => {
  const session = await context.request(agent.session.new, { cwd: folder, mcpServers: [] });
  const { sessionId } = session;
  const edited = await context.request(agent.session.prompt, { sessionId, prompt: say("Edit") });
  const running = context.request(agent.session.prompt, { sessionId, prompt: say("Wait") });
  await until(
    seen,
    (update) => update.status === "in_progress" && (update.title ?? "").includes("sleep"),
  );
  await context.notify(agent.session.cancel, { sessionId });
  return {
    sessionId,
    modes: session.modes.availableModes.map((mode) => mode.id),
    options: session.configOptions.map((option) => option.category),
    stopReasons: [edited.stopReason, (await running).stopReason],
    permission: seen.permissions[0],
    written: seen.written,
    text: text(seen.updates),
    diff: seen.updates.flatMap((update) => update.content ?? []).find((one) => one.type === "diff"),
    kinds: [...new Set(seen.updates.map((update) => update.sessionUpdate))],
  };
});

const second = await withAgent(async (context, seen) => {
  const { sessionId } = first;
  await context.request(agent.session.load, { sessionId, cwd: folder, mcpServers: [] });
  const history = text(seen.updates);
  const fork = await context.request(agent.session.fork, { sessionId, cwd: folder, mcpServers: [] });
  const listed = await context.request(agent.session.list, { cwd: folder });
  const answered = await context.request(agent.session.prompt, { sessionId, prompt: say("And?") });
  return {
    history,
    isFork: fork.sessionId !== sessionId,
    listed: listed.sessions.map((session) => session.sessionId),
    stopReason: answered.stopReason,
  };
});

const third = await withAgent(async (context, seen) => {
  const { sessionId } = await context.request(agent.session.new, { cwd: folder, mcpServers: [] });
  await context.request(agent.session.setMode, { sessionId, modeId: "plan" });
  await context.request(agent.session.prompt, { sessionId, prompt: say("Plan it") });
  const modes = [...seen.updates];
  const undone = await context.request(agent.session.prompt, { sessionId, prompt: say("/undo") });
  await context.request(agent.session.delete, { sessionId });
  const listed = await context.request(agent.session.list, { cwd: folder });
  return {
    sessionId,
    mode: modes.findLast((update) => update.sessionUpdate === "current_mode_update").currentModeId,
    modeOption: modes
      .findLast((update) => update.sessionUpdate === "config_option_update")
      .configOptions.find((option) => option.id === "mode").currentValue,
    undo: [undone.stopReason, text(seen.updates)],
    listed: listed.sessions.map((session) => session.sessionId),
  };
});

console.log(JSON.stringify({ first, second, third }));
