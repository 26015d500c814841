import type { ReactElement } from "react";
import type { Compaction } from "../lib/context.ts";
import { count } from "../lib/words.ts";
import { LongText } from "../ui/long-text.tsx";
import { Fold } from "./fold.tsx";

/** Says, where it is so, that the model is not shown what is above any more. */
export function Compacted({ compaction }: { compaction: Compaction }): ReactElement {
  const { summary, told, before, after } = compaction;
  if (!summary) return <p className="run-line">Earlier messages are not shown to the model any more.</p>;
  return (
    <Fold className="compacted" summary="Earlier messages were summarised for the model">
      {() => (
        <>
          <LongText text={summary} className="plain-text" />
          <p className="muted">
            {count(before)} tokens became {count(after)}. Everything is still here and in the log.
            {told &&
              " Some messages after those that the summary tells of are not shown to the model either."}
          </p>
        </>
      )}
    </Fold>
  );
}
