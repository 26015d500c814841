import type { Part } from "@holdfast/client";
import type { ReactElement } from "react";
import { Clamp } from "../ui/clamp.tsx";
import { FileView } from "./file.tsx";

/** What a person said, without what can be done with it. */
export function Said({ parts }: { parts: readonly Part[] }): ReactElement {
  return (
    <>
      {parts.map((part, i) => {
        const key = `${i}`;
        if (part.type === "file" && part.file) return <FileView key={key} file={part.file} />;
        if (part.type !== "text" || !part.text) return null;
        return (
          <div key={key} className="bubble">
            <Clamp height={360} what="the whole message">
              <div>{part.text.slice(0, 60_000)}</div>
            </Clamp>
          </div>
        );
      })}
    </>
  );
}
