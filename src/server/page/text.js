"use strict";

// How text of a model is shown: as Markdown, without any element that could run, load or submit something. Where the
// libraries are not part of the build, it is plain text.

const TAGS = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
  "del", "a", "table", "thead", "tbody", "tr", "th", "td"];

function escaped(text) {
  return text.replace(/[&<>"]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;"})[c]);
}

const markdown = typeof marked === "undefined" || typeof DOMPurify === "undefined" ? null : new marked.Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({text}) => escaped(text),  // tags that a model writes are text
    image: ({href, text}) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({checked}) => checked ? "\u2611 " : "\u2610 ",
  },
});

// Links open beside the conversation, and tell their target nothing of it.
function guardLinks(root) {
  for (const link of root.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
}

// The clipboard of browsers is for HTTPS and this machine alone; elsewhere a selection is copied.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function addCopyButtons(root) {
  for (const code of root.querySelectorAll("pre > code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await copyText(code.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    code.parentElement.append(button);
  }
}

function showText(element, content) {
  if (markdown === null) {
    element.classList.add("plain");
    element.textContent = content;
    return;
  }
  const fragment = DOMPurify.sanitize(markdown.parse(content),
    {ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", "title", "align", "start"], RETURN_DOM_FRAGMENT: true});
  guardLinks(fragment);
  addCopyButtons(fragment);
  element.replaceChildren(fragment);
}
