// The box under the prompt. While a run waits for its turn, it says how many wait: the server's queue answers that
// without running anything.
let timer = 0;

async function ask() {
  const reply = await fetch("gradio_api/queue/status");
  const { queue_size: size } = await reply.json();
  const waiting = element.querySelector(".waiting");
  if (!waiting || !size) return;
  const others = size > 1 ? `${size} runs wait, this one among them` : "This run is next";
  waiting.textContent = `Another picture is being drawn. ${others}. Stop leaves the queue.`;
}

watch("value", () => {
  clearInterval(timer);
  if (element.querySelector(".waiting")) timer = setInterval(ask, 1000);
});
