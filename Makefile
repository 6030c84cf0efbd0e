# Everything runs in environments under .venv/, one per purpose and version of Python.
# `make help` says what there is.

PYTHON  ?= python3
# More than processors, on the two of a small machine: tests also wait, for servers and each other.
WORKERS ?= 3
ARGS    ?=
FUZZ_SECONDS ?= 300

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
DEMO := .venv/demo-$(VERSION)
DEV  := .venv/dev-$(VERSION)
FUZZ := .venv/fuzz-$(VERSION)
DOCS := .venv/docs-$(VERSION)
PACKAGE := .venv/package-$(VERSION)

# Frameworks whose adapters are tested beside them, each in an environment of its own: NAME is a
# folder below tests/frameworks, and the extra NAME-test is what its tests need. NAME@VERSION
# tests an older release. Frameworks whose pins agree share one, `agents`.
FRAMEWORKS := agentflow agents crewai langgraph pyagenity pyagenity@0.3.3
LARGE := langgraph
FRAMEWORKS_NEED := 3.12

PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --upgrade --editable
CODE := $(wildcard src tests bench examples fuzz tools)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test environments frameworks conformance lint format bench soak package docs clean servers python-is-new-enough

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.13 chooses the interpreter (3.11 or newer); each version has its own environments."
	@echo "  ARGS=... is handed on to demo, test, frameworks, bench and soak: make test ARGS='-k merge'."

demo: $(DEMO)/.installed ## run the main job, and say how to look at what it leaves
	@$(DEMO)/bin/python examples/demo.py $(ARGS)

# mypy, and pip, keep one processor busy each: environments and the package are made while lint
# runs.
test: ## lint, try the package, then run every test
	@$(MAKE) --no-print-directory --jobs=$(WORKERS) servers lint environments package
	@$(call timed,dev,$(DEV)/bin/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(ARGS))
	@$(MAKE) --no-print-directory frameworks ARGS=

environments: python-is-new-enough
	@python=$$($(PYTHON) tools/find_python.py $(FRAMEWORKS_NEED)) && \
	    $(MAKE) --no-print-directory PYTHON=$$python framework-environments

.PHONY: framework-environments
framework-environments: $(FRAMEWORKS:%=.venv/%-$(VERSION)/.installed)

# The small ones run side by side, in one process each: most of their work is to import a framework.
frameworks: python-is-new-enough ## test the adapters beside their frameworks, on a Python that these take
	@python=$$($(PYTHON) tools/find_python.py $(FRAMEWORKS_NEED)) && \
	    $(MAKE) --no-print-directory --jobs=$(WORKERS) $(SYNCED) PYTHON=$$python PROCESSES=0 \
	        small-frameworks && \
	    $(MAKE) --no-print-directory PYTHON=$$python large-frameworks

.PHONY: small-frameworks large-frameworks
small-frameworks: $(patsubst %,framework-%,$(filter-out $(LARGE),$(FRAMEWORKS)))
large-frameworks: $(patsubst %,framework-%,$(filter $(LARGE),$(FRAMEWORKS)))

# Runs the tests of an environment, and prints how many minutes they took.
timed = began=$$(date +%s); $(2); result=$$?; took=$$(($$(date +%s) - began)); \
    printf 'tests in the environment %s: %d:%02d minutes\n' $(1) $$((took / 60)) $$((took % 60)); \
    exit $$result

PROCESSES ?= $(WORKERS)
# What runs side by side does not speak at the same time, where make can see to that.
SYNCED := $(if $(filter output-sync,$(.FEATURES)),--output-sync)

.PHONY: $(FRAMEWORKS:%=framework-%)
$(FRAMEWORKS:%=framework-%): framework-%: .venv/%-$(VERSION)/.installed | servers
	@$(call timed,$*,.venv/$*-$(VERSION)/bin/python -m pytest --numprocesses=$(PROCESSES) \
	    --dist=worksteal tests/frameworks/$(firstword $(subst @, ,$*)) $(ARGS))

conformance: python-is-new-enough ## run LangGraph's conformance suite on every engine, and publish the result
	@python=$$($(PYTHON) tools/find_python.py $(FRAMEWORKS_NEED)) && \
	    $(MAKE) --no-print-directory PYTHON=$$python publish-conformance

.PHONY: publish-conformance
publish-conformance: .venv/langgraph-$(VERSION)/.installed | servers
	.venv/langgraph-$(VERSION)/bin/python -m tests.frameworks.langgraph.conformance \
	    --write docs/reference/langgraph-conformance.md $(ARGS)

lint: $(DEV)/.installed ## style, types and the contracts between layers
	$(DEV)/bin/python -m ruff check $(CODE)
	$(DEV)/bin/python -m ruff format --check $(CODE)
	$(DEV)/bin/python -m mypy
	$(DEV)/bin/lint-imports

format: $(DEV)/.installed ## put the code into the one accepted shape
	$(DEV)/bin/python -m ruff check --fix $(CODE)
	$(DEV)/bin/python -m ruff format $(CODE)

bench: $(DEV)/.installed servers ## measure beside the peers
	$(DEV)/bin/python -m bench $(ARGS)

soak: $(DEV)/.installed $(FUZZ)/.installed servers ## the long campaigns and the fuzzers
	ROPEWALK_SOAK=1 $(DEV)/bin/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)
	@ROPEWALK_SOAK=1 $(MAKE) --no-print-directory frameworks ARGS=
	@set -e; for fuzzer in $(wildcard fuzz/fuzz_*.py); do \
	    name=$$(basename $$fuzzer .py); \
	    mkdir -p fuzz/corpus/$$name fuzz/crashes; \
	    echo "$$fuzzer for $(FUZZ_SECONDS) seconds"; \
	    $(FUZZ)/bin/python $$fuzzer -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 \
	        -artifact_prefix=fuzz/crashes/$$name- fuzz/corpus/$$name; \
	done

servers: python-is-new-enough ## install the servers that tests run against, if they are not there
	@$(PYTHON) tools/servers.py

package: $(PACKAGE)/.installed ## build the wheel and the source distribution, and try them out
	@$(PACKAGE)/bin/python tools/package.py

docs: $(DOCS)/.installed ## build the documentation; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict

clean: ## remove environments, caches and what was built
	rm -rf .venv .bench-venv* build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments. `.created` and `.installed` are written last, so a run that was
# interrupted is done again.

python-is-new-enough:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Ropewalk needs Python 3.11 or newer, and '$(PYTHON)' is $(if $(VERSION),Python $(VERSION),not a Python that runs): choose another with PYTHON=, for example make test PYTHON=python3.13." >&2; \
	    exit 1; }

.venv/%/.created: | python-is-new-enough
	@echo "creating $(@D) with Python $(VERSION)"
	@$(PYTHON) -m venv --clear $(@D)
	@touch $@

$(DEMO)/.installed: EXTRAS := [cli]
$(DEV)/.installed: EXTRAS := [dev]
$(FUZZ)/.installed: EXTRAS := [dev,fuzz]
$(DOCS)/.installed: EXTRAS := [docs]
$(PACKAGE)/.installed: EXTRAS := [package]
$(FRAMEWORKS:%=.venv/%-$(VERSION)/.installed): FRAMEWORK = $(patsubst .venv/%-$(VERSION),%,$(@D))
$(FRAMEWORKS:%=.venv/%-$(VERSION)/.installed): EXTRAS = [$(firstword $(subst @, ,$(FRAMEWORK)))-test]
$(FRAMEWORKS:%=.venv/%-$(VERSION)/.installed): PINNED = $(if $(findstring @,$(FRAMEWORK)),$(subst @,==,$(FRAMEWORK)))

.venv/%/.installed: .venv/%/.created pyproject.toml src/ropewalk/_version.py
	@echo "installing ropewalk$(EXTRAS) $(PINNED) into $(@D)"
	@$(@D)/bin/python $(PIP_INSTALL) '.$(EXTRAS)' $(PINNED)
	@touch $@

.PRECIOUS: .venv/%/.created .venv/%/.installed
