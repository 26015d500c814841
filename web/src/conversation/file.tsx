import type { File as WireFile } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { FileText } from "lucide-react";
import type { ReactElement } from "react";
import { byteSize } from "../lib/words.ts";
import { useSessionActions } from "./session-context.ts";

/** A file: a picture as such, anything else as something to open. */
export function FileView({ file }: { readonly file: WireFile }): ReactElement {
  const { mirror } = useSessionActions();
  const { api } = useClient();
  const url = file.blob ? api.blobUrl(mirror.id, file.blob.hash) : file.url;
  const name = file.name || "File";
  // Only what is here is shown: to load from elsewhere would tell that it was looked at.
  if (
    url &&
    /^image\/(png|jpeg|gif|webp|avif)$/.test(file.mediaType) &&
    (file.blob || url.startsWith("data:"))
  ) {
    return <img className="picture" src={url} alt={name} loading="lazy" />;
  }
  return (
    <a className="file" href={url} target="_blank" rel="noopener noreferrer nofollow" download={name}>
      <FileText size={20} aria-hidden="true" />
      <span className="file-name">
        <span className="truncate">{name}</span>
        <small>
          {file.mediaType}
          {file.blob && `, ${byteSize(file.blob.size)}`}
        </small>
      </span>
    </a>
  );
}
