import { Check, Copy } from "lucide-react";
import { type ReactElement, useEffect, useState } from "react";
import { IconButton } from "./icon-button.tsx";
import { useToasts } from "./toast.tsx";

type Props = { readonly text: () => string; readonly label?: string; readonly className?: string };

/** Copies a text. */
export function CopyButton({ text, label = "Copy", className = "" }: Props): ReactElement {
  const [copied, setCopied] = useState(false);
  const { act } = useToasts();
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1_500);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <IconButton
      small
      className={className}
      label={copied ? "Copied" : label}
      onClick={() =>
        act(
          "copy it",
          navigator.clipboard.writeText(text()).then(() => setCopied(true)),
        )
      }
    >
      {copied ? <Check size={16} /> : <Copy size={16} />}
    </IconButton>
  );
}
