// Tables that scroll by themselves can be reached with the keyboard. The theme wraps them after the page has loaded.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap").forEach((wrap) => { wrap.tabIndex = 0; });
new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true });
reach();
