import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import type { Chunk, Part } from "../src/chunk.ts";

/** The message that a client of the SDK makes of a stream. */
export async function read(chunks: readonly Chunk[], message?: UIMessage): Promise<UIMessage | undefined> {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk as UIMessageChunk);
      controller.close();
    },
  });
  let last: UIMessage | undefined;
  for await (const next of readUIMessageStream({ stream, ...(message && { message }) })) last = next;
  return last;
}

/**
 * Parts as a person sees them who loads the page again: without what only some
 * versions of the client keep, a decision, which older ones are not told of,
 * and a call that was cut off while it was being written.
 */
export function seen(parts: readonly object[] | undefined): unknown {
  return (parts as readonly Part[] | undefined)?.flatMap((part) => {
    const { approval, rawInput, id, input, ...rest } = part as Part & Record<string, unknown>;
    if (rest.errorText === "This call was cut off.") return [];
    const asks = part.type.startsWith("tool-") && "state" in part && part.state === "approval-requested";
    const given = typeof input !== "string" && { input };
    const shown = {
      ...rest,
      ...given,
      ...(part.type.startsWith("data-") && { id }),
      ...(asks && { approval }),
    };
    return [JSON.parse(JSON.stringify(shown)) as unknown];
  });
}
