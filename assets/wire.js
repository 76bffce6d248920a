// A hidden child of the stage: hands its value up to it, as an event named like the wire.
const send = () => element.dispatchEvent(new CustomEvent(props.wire, { bubbles: true, detail: props.value || "" }));
watch("value", send);
send();
