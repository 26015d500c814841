import type { OutgoingPart } from "@holdfast/client";

/** A file that goes with the next message. */
export type Attachment = {
  readonly id: number;
  readonly name: string;
  readonly mediaType: string;
  readonly url: string;
};

/** What a message may carry is 8 MiB, and base64 takes a third more than the file. */
const most = 5_500_000;

let last = 0;

/** Reads files. What is too large together is refused, in words. */
export async function readFiles(
  files: readonly File[],
  kept: readonly Attachment[],
): Promise<{ readonly read: readonly Attachment[]; readonly problem?: string }> {
  const before = kept.reduce((sum, { url }) => sum + (url.length * 3) / 4, 0);
  const size = files.reduce((sum, file) => sum + file.size, before);
  if (size > most) return { read: [], problem: "Files of one message may have 5 MB together." };
  const read = await Promise.all(
    files.map(async (file) => ({
      id: ++last,
      name: file.name || "file",
      mediaType: file.type || "application/octet-stream",
      url: await dataUrl(file),
    })),
  );
  return { read };
}

/** What a message with these files consists of. */
export function partsOf(text: string, attachments: readonly Attachment[]): OutgoingPart[] {
  return [
    ...(text ? [{ type: "text" as const, text }] : []),
    ...attachments.map(({ name, mediaType, url }) => ({
      type: "file" as const,
      file: { name, mediaType, url },
    })),
  ];
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}
