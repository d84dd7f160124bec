// Every block to paste has a button in front of it. Where a page may not use the clipboard, the text is selected.
for (const block of document.querySelectorAll(".paste")) {
  const button = block.querySelector("button");
  const code = block.querySelector("code");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
