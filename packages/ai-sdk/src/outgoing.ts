import type { Json, OutgoingPart } from "@holdfast/client";
import type { UIMessage } from "ai";

/** What a person's message says to the server. */
export function outgoing(message: UIMessage): OutgoingPart[] {
  return message.parts.flatMap((part): OutgoingPart[] => {
    if (part.type === "text") return part.text ? [{ type: "text", text: part.text }] : [];
    if (part.type === "file") {
      const { mediaType, filename, url } = part;
      return [{ type: "file", file: { mediaType, ...(filename && { name: filename }), url } }];
    }
    if (part.type.startsWith("data-")) return [{ type: "data", data: part as unknown as Json }];
    throw new TypeError(`a person sends text, files and data, not ${part.type}`);
  });
}
