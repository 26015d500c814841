import type { ReactElement } from "react";
import { useAgents } from "../lib/agents.ts";

const demo = [
  { say: "Plan a trip to Lisbon", why: "Several tools at once, in steps" },
  { say: "Delete the old reports", why: "A call that waits for your approval" },
  { say: "Delegate to subagents", why: "Side by side, each in a conversation of its own" },
  { say: "Count to 500 slowly", why: "Refresh the page in the middle" },
  { say: "Run a long task", why: "Progress that you can leave and come back to" },
  { say: "Show markdown", why: "Code, tables and lists as they stream" },
];

type Props = { readonly onChoose: (text: string) => void };

/** A session in which nothing has been said. */
export function Welcome({ onChoose }: Props): ReactElement {
  const agents = useAgents();
  const agent = agents.items.find(({ name }) => name === agents.default);
  const isDemo = agent?.model.startsWith("demo/");
  return (
    <div className="welcome">
      <div className="welcome-inner">
        <h2>What should be done?</h2>
        <p>
          It goes on without this page: refresh, close the tab, come back tomorrow. What was said, and what
          was asked of you, is still here.
          {isDemo && " The demo agent is a script that shows what can happen. Try one of these:"}
        </p>
        {isDemo && (
          <ul className="suggestions">
            {demo.map(({ say, why }) => (
              <li key={say}>
                <button type="button" className="suggestion" onClick={() => onChoose(say)}>
                  <strong>{say}</strong>
                  <span>{why}</span>
                </button>
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}
