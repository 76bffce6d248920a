# make demo      open the page in the browser (PORT=7861 chooses the port)
# make test      lint and quick tests
# make test-all  the slow tests too
# make train     retrain the embedded model
# make traces    record the race that the page opens with
#
# Each target first sets up .venv; a second run finds it ready and installs nothing.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
LAUNCH := $(VENV)/bin/accelerate launch
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check

# pytest runs the tests, ruff checks and formats the code, playwright drives the browser; gradio's extra is the README's.
TEST_TOOLS := 'pytest>=9,<10' 'ruff>=0.17,<0.18' 'playwright>=1.50,<2' 'gradio[mcp]'

# Without a screen there is no browser to open; the address is printed either way.
HAS_SCREEN := $(or $(DISPLAY),$(WAYLAND_DISPLAY),$(filter Darwin,$(shell uname)))

# Tests reach no network: no model hub, no usage statistics.
OFFLINE := HF_HUB_OFFLINE=1 GRADIO_ANALYTICS_ENABLED=False

.PHONY: demo test test-all lint train traces

demo: $(VENV)/.ready
	$(RUN) app.py $(if $(PORT),--port $(PORT)) $(if $(HAS_SCREEN),--open)

test: lint
	$(OFFLINE) $(RUN) -m pytest -q

test-all: lint
	$(OFFLINE) $(RUN) -m pytest -q -m ""

lint: $(VENV)/.ready-test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

# Hours; fetches the emoji with npm and compiles with g++. Parts under way lie in ~/.cache/draftboard.
train: $(VENV)/.ready
	@for tool in npm g++; do command -v $$tool >/dev/null || { \
	    echo "make train needs npm and g++; install $$tool first." >&2; exit 1; }; done
	$(LAUNCH) -m training.train_tokenizer
	$(LAUNCH) -m training.train_transformer
	$(LAUNCH) -m training.train_drafter
	$(RUN) -m training.publish --drafter ~/.cache/draftboard/drafter --out assets/emoji-scenes
	$(RUN) -m training.feature_mean --model assets/emoji-scenes
	$(LAUNCH) -m training.train_classifier --out assets/emoji-scenes-judge

# A quarter of a minute on an idle machine; the recorded seconds are those of the machine that runs it.
traces: $(VENV)/.ready
	$(OFFLINE) $(RUN) -m benchmarks.traces

# transformers 5.24 and diffusers 0.42 both ask for Python 3.11.
$(VENV)/.ready: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Draftboard needs Python 3.11 or newer; name one that you have: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready Makefile
	$(INSTALL) $(TEST_TOOLS)
	@touch $@
