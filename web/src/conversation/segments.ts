import type { Part, ToolCall } from "@holdfast/client";

/** A piece of an answer as it is shown. */
export type Segment =
  | { readonly kind: "text" | "reasoning"; readonly key: string; readonly part: Part }
  | { readonly kind: "tools"; readonly key: string; readonly calls: readonly ToolCall[] }
  | { readonly kind: "files" | "sources"; readonly key: string; readonly parts: readonly Part[] }
  | { readonly kind: "data"; readonly key: string; readonly part: Part }
  /** What an attempt had said that gave no answer. */
  | { readonly kind: "superseded"; readonly key: string; readonly parts: readonly Part[] };

/** The pieces of an answer, in its order: what belongs together is together. */
export function segmentsOf(parts: readonly Part[]): Segment[] {
  const segments: Segment[] = [];
  for (const [index, part] of parts.entries()) {
    const last = segments.at(-1);
    const key = `${part.step ?? 0}.${part.part ?? 0}.${part.type}.${index}`;
    if (part.state === "failed") {
      if (last?.kind === "superseded")
        segments[segments.length - 1] = { ...last, parts: [...last.parts, part] };
      else segments.push({ kind: "superseded", key, parts: [part] });
      continue;
    }
    switch (part.type) {
      case "text":
      case "reasoning":
        if (part.text || part.blob || part.state)
          segments.push({ kind: part.type === "text" ? "text" : "reasoning", key, part });
        break;
      case "tool":
        if (!part.tool) break;
        if (last?.kind === "tools")
          segments[segments.length - 1] = { ...last, calls: [...last.calls, part.tool] };
        else segments.push({ kind: "tools", key: `tools.${part.tool.id}`, calls: [part.tool] });
        break;
      case "file":
      case "source": {
        const kind = part.type === "file" ? "files" : "sources";
        if (last?.kind === kind) segments[segments.length - 1] = { ...last, parts: [...last.parts, part] };
        else segments.push({ kind, key, parts: [part] });
        break;
      }
      case "step":
        break;
      default:
        if (part.data !== undefined) segments.push({ kind: "data", key, part });
    }
  }
  return segments;
}
