import type { Message } from "@holdfast/client";
import { Activity, CircleAlert, Layers } from "lucide-react";
import { memo, type ReactElement } from "react";
import { textOf } from "../lib/words.ts";
import { CopyButton } from "../ui/copy-button.tsx";
import { IconButton } from "../ui/icon-button.tsx";
import { Parts } from "./parts.tsx";
import { failureTitle } from "./run-line.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = { readonly message: Message; readonly about: NonNullable<Message["background"]> };

/** How a background run ended. */
export const ResultTurn = memo(function ResultTurn({ message, about }: Props): ReactElement {
  const { inspect } = useSessionActions();
  const { error, title, run } = about;
  return (
    <article className={`result-turn ${error ? "failed" : ""}`} aria-label="Result of a background run">
      <header className="result-head">
        {error ? (
          <CircleAlert className="result-icon" size={16} aria-hidden="true" />
        ) : (
          <Layers className="result-icon" size={16} aria-hidden="true" />
        )}
        <span className="truncate result-about">
          From the background{title && <span className="result-title">: {title}</span>}
        </span>
        <span className="quiet-until-near">
          {!error && <CopyButton text={() => textOf(message)} />}
          <IconButton small label="How this run went" onClick={() => inspect(run)}>
            <Activity size={16} />
          </IconButton>
        </span>
      </header>
      {error ? (
        <>
          <p className="result-error">{failureTitle(error)}</p>
          {error.message && <p>{error.message}</p>}
        </>
      ) : message.parts.length > 0 ? (
        <Parts message={message} />
      ) : (
        <p>It ended without a word.</p>
      )}
    </article>
  );
});
