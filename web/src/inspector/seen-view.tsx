import type { ReactElement } from "react";
import { Fold } from "../conversation/fold.tsx";
import { type Seen, type SeenMessage, type SeenPart, useSeen } from "../lib/context.ts";
import { byteSize, count, toolTitle } from "../lib/words.ts";
import { LongText } from "../ui/long-text.tsx";

type Props = { readonly run: string; readonly step: number; readonly attempt: number };

/** What the model saw at a step: everything it was sent, message by message. */
export function SeenView({ run, step, attempt }: Props): ReactElement {
  const seen = useSeen(run, step, attempt);
  if (seen.name === "loading") return <p>Looking it up…</p>;
  if (seen.name === "failed") return <p>It cannot be read now.</p>;
  const { exact, reason, system, tools, fixed, messages, cut } = seen.value;
  return (
    <div className="seen">
      <WindowUse seen={seen.value} />
      {!exact && <p className="seen-note">Not exactly so: {reason}.</p>}
      {(system || tools) && (
        <Fold summary={<Line role={fixedTitle(system, tools?.length ?? 0)} tokens={fixed} />}>
          {() => (
            <>
              {system && <LongText text={system} className="plain-text" />}
              {tools?.map(({ name, description }) => (
                <p key={name}>
                  <b className="mono">{name}</b> {description}
                </p>
              ))}
            </>
          )}
        </Fold>
      )}
      <ol aria-label="Messages">
        {messages.map((message, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: what was seen does not change.
          <li key={i}>
            <Fold summary={<Line role={titleOf(message)} tokens={message.tokens} mark={markOf(message)} />}>
              {() =>
                message.parts.map((part, k) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: what was seen does not change.
                  <PartView key={k} part={part} />
                ))
              }
            </Fold>
          </li>
        ))}
      </ol>
      {cut ? <p>{byteSize(cut)} of text are not shown here.</p> : null}
    </div>
  );
}

/** How much of the window was used, as a bar and in words. */
function WindowUse({ seen }: { seen: Seen }): ReactElement {
  const { tokens, window, reported } = seen;
  const words = window
    ? `about ${count(tokens)} of ${count(window)} tokens`
    : `about ${count(tokens)} tokens`;
  return (
    <>
      {window && (
        <meter
          className="window-use"
          aria-label="Use of the model's window"
          aria-valuetext={words}
          max={window}
          value={Math.min(tokens, window)}
        />
      )}
      <p>
        {words}
        {reported ? `; the provider counted ${count(reported)}` : ""}
      </p>
    </>
  );
}

function Line({
  role,
  tokens,
  mark,
}: {
  role: string;
  tokens: number;
  mark?: string | undefined;
}): ReactElement {
  return (
    <span className="seen-line">
      <span className="truncate">{role}</span>
      {mark && <span className="badge">{mark}</span>}
      <span className="seen-tokens">{count(tokens)} tokens</span>
    </span>
  );
}

function fixedTitle(system: string | undefined, tools: number): string {
  const words = tools === 1 ? "1 tool" : `${tools} tools`;
  if (!system) return words;
  return tools === 0 ? "Instructions" : `Instructions and ${words}`;
}

const roles: Record<string, string> = { user: "Person", assistant: "Model", tool: "Results" };

function titleOf({ role, message, step, parts }: SeenMessage): string {
  if (!message) return "In place of earlier messages";
  const names = parts
    .filter(({ kind }) => kind === "call" || kind === "result")
    .map(({ name }) => toolTitle(name ?? ""));
  const text = parts.find(({ kind, text }) => kind === "text" && text)?.text?.slice(0, 80);
  const about = names.length > 0 ? names.join(", ") : text;
  return `${roles[role] ?? role}${step ? `, step ${step}` : ""}${about ? `: ${about}` : ""}`;
}

function markOf({ message, shortened }: SeenMessage): string | undefined {
  if (!message) return "summary";
  return shortened ? "shortened" : undefined;
}

function PartView({ part }: { part: SeenPart }): ReactElement {
  const { kind, text, cut, name, failed, mediaType, size, url, files } = part;
  const title = {
    call: `Calls ${name}`,
    result: `${failed ? "Failure" : "Result"} of ${name}`,
    reasoning: "Reasoning",
    file: `File, ${mediaType ?? "of no type"}${size ? `, ${byteSize(size)}` : ""}`,
  }[kind];
  return (
    <div>
      {title && <b>{title}</b>}
      {text && (
        <LongText
          text={text}
          className={kind === "call" || kind === "result" ? "plain-text mono" : "plain-text"}
        />
      )}
      {url && <p className="mono">{url}</p>}
      {files ? <p>{files === 1 ? "With a picture" : `With ${files} pictures`}</p> : null}
      {cut ? <p>{byteSize(cut)} more</p> : null}
    </div>
  );
}
