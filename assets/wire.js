// A hidden child of the stage: hands its value up to it, as an event named like the wire; again when the stage asks.
const send = () => element.dispatchEvent(new CustomEvent(props.wire, { bubbles: true, detail: props.value || "" }));
element.dataset.wire = props.wire;
element.addEventListener("ask", send);
watch("value", send);
send();
