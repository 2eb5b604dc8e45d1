# gotorch: `make demo` trains a model, `make test` runs every test; both set everything up first.
# Nothing is installed outside this folder. What is done is not done again.
#
#   TORCH_VERSION=2.13.0   another torch (2.11.0 to 2.15.0); the choice holds until the next one
#   TORCH_INDEX=URL        take torch from this index, for instance one of PyTorch's CPU wheels
#   PYTHON=python3.12      the Python that makes .venv
#   CXX=clang++            the C++ compiler
#   TORCHES="2.14.1 2.13.0"  for which torches, besides that of .venv, make release compiles a library
#   ARGS='-k name'         more arguments for pytest
#   DURATION=10m           how long make soak takes
#   FUZZ_TIME=10m          for how long `make fuzz` runs each test

.DEFAULT_GOAL := build
SOAKS := soak-torture soak-training soak-run soak-serve soak-ranks soak-graphs
LINTS := lint-format lint-vet lint-staticcheck lint-ruff lint-mypy
.PHONY: help setup build generate protocol demo test release test-torch test-arm64 test-cuda test-address test-thread fuzz lint $(LINTS) format bench bench-peers bench-cuda bench-serve soak $(SOAKS) \
	conformance zoo mutants doctor clean distclean

# A variable that is empty is as good as none, wherever it comes from.
ifeq ($(strip $(PYTHON)),)
override PYTHON := python3
endif
VENV := .venv
PY := $(VENV)/bin/python
BRIDGE := $(PY) -m pytorch_bridge
# Another project's packages must not be found in place of ours.
unexport PYTHONPATH PYTHONHOME

# What needs Go runs in the environment that `env` prints: the right go, caches where HOME is unset.
IN_ENV = eval "$$($(BRIDGE) env)" &&
GO = $(IN_ENV) go

help: ## what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## .venv with torch and everything else that is needed
	@command -v $(PYTHON) >/dev/null || { echo "make: there is no $(PYTHON) on PATH." \
	  "Python 3.10 or newer is needed; to install it, type one of:"; \
	  echo "  sudo apt install python3 python3-venv   sudo dnf install python3   brew install python"; \
	  exit 1; } >&2
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytorch_bridge.native.bootstrap --venv $(VENV) \
	  $(if $(TORCH_VERSION),--torch '$(TORCH_VERSION)') $(if $(TORCH_INDEX),--index '$(TORCH_INDEX)')

# The check that what is committed is what the schema asks for runs when either has changed.
# docs/reference has docstrings of every module that is public.
GENERATOR := $(wildcard $(foreach dir,. schema types graph inference ops aliasing autodiff frontend link extending codegen \
	packages packages/bundle packages/go_package packages/load_go,pytorch_bridge/$(dir)/*.py pytorch_bridge/$(dir)/*.yaml)) \
	$(filter-out %_gen.h,$(wildcard cgotorch/*.h))
GENERATED := $(wildcard cgotorch/*_gen* gotorch/*_gen.go gotorch/internal/ctorch/*_gen.go pytorch_bridge/schema/*_gen* \
	docs/reference/*.md \
	tests/conformance/harness/*_gen.go gotorch/nn/*_gen.go gotorch/nn/functional/*_gen.go)
build/generated: $(GENERATOR) $(GENERATED) | setup
	@$(IN_ENV) $(BRIDGE) generate --check
	@mkdir -p $(@D) && touch $@

# Not committed, so that a clean clone or `git clean` lacks it.
STUBS := pytorch_bridge/ops/__init__.pyi
$(STUBS): build/generated
	@test -f $@ || { $(IN_ENV) $(BRIDGE) generate --check; }
	@touch $@

build: setup build/generated $(STUBS) ## libcgotorch.so and the Go packages
	@$(BRIDGE) build
	@$(GO) build ./...

generate: setup ## write the C and Go functions again, from the schema of the installed torch
	@$(IN_ENV) $(BRIDGE) generate

# protoc comes in a wheel, beside its plugins for Go, which are in .ci/tools.mod. Nothing else needs either.
PROTOC := build/protoc
GO_TOOL = $(IN_ENV) go tool -modfile=.ci/tools.mod
$(PROTOC)/ready:
	$(PY) -m pip install -q --target $(PROTOC) --no-deps grpcio-tools==1.85.1 grpcio==1.85.3 protobuf==7.36.2 setuptools
	touch $@

protocol: setup $(PROTOC)/ready ## write the Go of serve's gRPC protocol again, from its .proto
	cd gotorch && PYTHONPATH=../$(PROTOC) ../$(PY) -m grpc_tools.protoc -I . \
	  --plugin=protoc-gen-go="$$(cd .. && $(GO_TOOL) -n protoc-gen-go)" --go_out=. --go_opt=paths=source_relative \
	  --plugin=protoc-gen-go-grpc="$$(cd .. && $(GO_TOOL) -n protoc-gen-go-grpc)" --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	  serve/internal/inferencepb/inference.proto

demo: build ## train a small network on handwritten digits, save it, load it, predict
	@$(GO) build -buildvcs=false -o build/bin/ ./examples/digits
	@build/bin/digits train
	@build/bin/digits predict

# Two processes: much of a test is one thread that waits for a compiler or a program.
test: build ## every test, Python and Go
	@$(PY) -m pytest $(if $(ARGS),$(ARGS),-n 2 --no-loadscope-reorder)

test-torch: ## build for another torch and run the smoke tests: make test-torch TORCH_VERSION=2.11.0
	$(if $(TORCH_VERSION),,$(error say which: make test-torch TORCH_VERSION=2.11.0))
	@$(MAKE) --no-print-directory setup VENV=.venv-$(TORCH_VERSION)
	@GOTORCH_BUILD_DIR=build/$(TORCH_VERSION) .venv-$(TORCH_VERSION)/bin/python -m pytorch_bridge build
	@GOTORCH_BUILD_DIR=build/$(TORCH_VERSION) .venv-$(TORCH_VERSION)/bin/python -m pytest -m smoke $(ARGS)

test-arm64: setup ## the library, C programs and Go smoke tests for linux/arm64, by a cross compiler and qemu-user
	@$(PY) -m pytorch_bridge.testing.arm64 $(ARGS)

# The packages whose tests start no Python, which has leaks of its own.
WITHOUT_PYTHON = ./gotorch $(patsubst %,./gotorch/%/...,data nn optim train)

# Python and Go keep pointers where the leak detector does not look; what C loses is found by the C
# programs. libstdc++ is in front too, because the sanitizer looks for its functions at the start.
ADDRESS := build/address
IN_ADDRESS = export GOTORCH_BUILD_DIR=$(ADDRESS); $(IN_ENV)
runtime_of = $$($${CXX:-g++} -print-file-name=$(1))
PRELOAD = LD_PRELOAD=$(call runtime_of,libasan.so):$(call runtime_of,libstdc++.so.6) \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1

# What the sanitizer reserves, and what it keeps of what was freed, is most of the process's memory.
NOT_IN_ADDRESS := TestReleaseCachedMemory|TestAddressesThatAreOnlyReserved|TestDeadTensorsMakeRoomOnTheCPU

test-address: setup ## the C, Go and graph tests under the address sanitizer; takes ten minutes
	@GOTORCH_BUILD_DIR=$(ADDRESS) $(BRIDGE) build --sanitize address
	@GOTORCH_BUILD_DIR=$(ADDRESS) ASAN_OPTIONS=allocator_may_return_null=1 \
	  $(PY) -m pytest tests/test_c_abi.py tests/test_callbacks.py tests/test_words.py -k facts
	@$(IN_ADDRESS) $(PRELOAD) $(PY) -m pytest tests/graph/test_fusion.py \
	  tests/graph/test_c_linker.py tests/graph/test_native_c.py tests/graph/test_exported.py
	@$(IN_ADDRESS) go test -short -skip '$(NOT_IN_ADDRESS)' -exec "env $(PRELOAD)" \
	  $(WITHOUT_PYTHON)
	@$(PY) -m pytest --basetemp=$(ADDRESS)/exported tests/graph/test_export_go.py -k gofmt
	@$(IN_ADDRESS) cd $(ADDRESS)/exported/export0 && CGO_CFLAGS='-O1 -g -fsanitize=address' \
	  CGO_LDFLAGS="$$CGO_LDFLAGS -fsanitize=address" go test -exec "env $(PRELOAD)" ./...

# libtorch is not compiled with the sanitizer, so what it does is left out: see the file of suppressions. The sanitizer takes
# it for ours where libtorch unlocks a mutex of its own by a jump, and would call that mutex unlocked.
THREAD := build/thread
IN_THREAD = GOTORCH_BUILD_DIR=$(THREAD) TSAN_OPTIONS="suppressions='$(CURDIR)/cgotorch/test/thread.supp' report_mutex_bugs=0"

test-thread: setup ## the C tests under the thread sanitizer; takes ten minutes, the first time
	@GOTORCH_BUILD_DIR=$(THREAD) $(BRIDGE) build --sanitize thread
	@$(IN_THREAD) $(PY) -m pytest tests/test_c_abi.py tests/test_callbacks.py tests/test_engine.py tests/test_order.py \
	  tests/test_words.py -k 'facts or numbers' $(ARGS)

# A new test of this kind is a target in SOAKS that takes about DURATION: 90s, 10m, 1h.
DURATION ?= 1h
soak: $(SOAKS) ## what breaks only after long: tests at random for DURATION=1h

soak-torture: build
	@$(IN_ENV) SOAK='$(DURATION)' go test ./gotorch -run '^TestTorture$$' -v -count=1 -timeout=0

# It takes what 10,000 steps of three models take, some minutes, whatever DURATION is.
soak-training: build
	@$(IN_ENV) SOAK=1 go test ./bench/models -run '^TestMemory' -v -count=1 -timeout=0

# A million steps of a tiny model with logs and checkpoints, some minutes, whatever DURATION is.
soak-run: build
	@$(IN_ENV) SOAK=1 go test ./gotorch/train -run '^TestALongRunStaysSmall$$' -v -count=1 -timeout=0

# A million requests to the handlers, and a million of every kind to a server in a process of its own: some minutes each,
# whatever DURATION is.
soak-serve: build
	@$(IN_ENV) SOAK=1 go test ./gotorch/serve ./gotorch/serve/daemon -run '^TestMemoryIsFlat$$|^TestARunningServerStaysSmall$$' -p 1 -v -count=1 -timeout=0

# Ranks that are killed at 300 moments, some minutes, whatever DURATION is.
soak-ranks: build
	@SOAK=1 $(PY) -m pytest tests/test_distributed_faults.py
	@$(IN_ENV) SOAK=1 go test ./gotorch/train -run '^TestRanksGoOnToTheSameBits$$' -v -count=1 -timeout=0

# What a fuzz test finds is written to testdata/fuzz, where every later `go test` tries it again. Go would
# spend up to a minute on making each input smaller that reaches new code, and on slow tests all the time.
FUZZ_TIME ?= 1m
fuzz: build ## look for files that the readers do not stand; each for FUZZ_TIME=1m
	@$(IN_ENV) grep -ro --include='*_test.go' '^func Fuzz[A-Za-z]*' gotorch \
	  | sed 's|/[^/]*:func | |' | while read -r folder test; do \
	    echo "$$folder $$test"; \
	    go test "./$$folder" -run '^$$' -fuzz "^$$test$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 100x || exit 1; \
	  done

# SEED begins where the last one ended, and the seeds of graphs that fail are printed.
SEED ?= 10000
soak-graphs: build
	@$(PY) tests/graph/random_graphs.py '$(SEED):' '$(DURATION)'
	@$(PY) tests/graph/pointwise_cases.py '$(SEED):' '$(DURATION)'
	@$(PY) tests/graph/writing_modules.py '$(SEED):' '$(DURATION)' c
	@CONFORMANCE=full $(PY) tests/graph/rule_cases.py '$(SEED)' 50
	@CONFORMANCE=full $(PY) tests/graph/gradient_cases.py '$(SEED)' 50

test-cuda: build ## what needs a GPU; where there is none it says so
	@found=$$($(PY) -W ignore -c 'import torch; print(torch.cuda.is_available())') || exit 1; \
	if [ "$$found" = True ]; then \
	  GOTORCH_TEST_CUDA=1 $(PY) -m pytest tests/test_devices.py $(ARGS); \
	else echo "make test-cuda: there is no GPU that PyTorch can use, so nothing was run"; fi

lint: $(LINTS) ## format and static checks

GO_FOLDERS = $(wildcard gotorch cmd examples bench tests pytorch_bridge/packages/bundle)
C_FILES = $(wildcard $(foreach dir,cgotorch cgotorch/test bench pytorch_bridge/native/extension,$(dir)/*.h $(dir)/*.c $(dir)/*.cc))
HANDWRITTEN_C = $(foreach file,$(C_FILES),$(if $(findstring _gen,$(file)),,$(file)))

lint-format: setup
	@{ $(GO)fmt -l $(GO_FOLDERS); \
	  $(PY) -m ruff format --quiet --diff 2>/dev/null | sed -n 's/^--- //p'; \
	  for file in $(HANDWRITTEN_C); do \
	    $(VENV)/bin/clang-format --dry-run -Werror $$file 2>/dev/null || echo $$file; \
	  done; } | awk '{print "make format would change " $$0; bad = 1} END {exit bad}'

lint-vet: setup
	@$(GO) vet ./...

lint-staticcheck: setup
	@$(GO) tool -modfile=.ci/tools.mod staticcheck ./...

lint-ruff: setup
	@$(PY) -m ruff check --quiet

lint-mypy: setup $(STUBS)
	@$(PY) -m mypy --no-error-summary

format: setup ## format every hand-written file
	@$(GO)fmt -w $(GO_FOLDERS)
	@$(PY) -m ruff format --quiet
	@$(VENV)/bin/clang-format -i $(HANDWRITTEN_C)

bench: build ## measure against C++ and Python; writes docs/benchmarks.md
	@$(IN_ENV) $(BRIDGE) bench

# tch-rs is made for one version of torch, so that all run on that: beside what was built, as for test-torch.
PEERS_TORCH = $(shell sed -n 's/^TORCH_OF_TCH = "\(.*\)"/\1/p' pytorch_bridge/bench/peers.py)
IN_PEERS = export GOTORCH_BUILD_DIR=build/$(PEERS_TORCH); eval "$$(.venv-$(PEERS_TORCH)/bin/python -m pytorch_bridge env)" &&
bench-peers: ## measure beside tch-rs (needs cargo) and GoMLX; writes docs/benchmarks-peers.md
	@$(MAKE) --no-print-directory setup VENV=.venv-$(PEERS_TORCH) TORCH_VERSION=$(PEERS_TORCH)
	@GOTORCH_BUILD_DIR=build/$(PEERS_TORCH) .venv-$(PEERS_TORCH)/bin/python -m pytorch_bridge build
	@$(IN_PEERS) .venv-$(PEERS_TORCH)/bin/python -m pytorch_bridge bench --peers

bench-cuda: build ## measure on a GPU beside Python; writes docs/benchmarks-cuda.md
	@$(IN_ENV) $(BRIDGE) bench --cuda

bench-serve: build ## measure serve beside FastAPI, MLServer, BentoML, TorchServe; writes docs/benchmarks-serving.md
	@$(IN_ENV) $(BRIDGE) bench --serve

conformance: build ## all of PyTorch's operator samples through Go; writes docs/conformance.md
	@CONFORMANCE=full $(PY) -m pytest tests/conformance $(ARGS)

# The libraries are installed beside the torch of .venv, which they find, so that none is replaced.
ZOO := build/zoo/venv
$(ZOO)/ready: | setup
	@$(PY) -m venv --without-pip $(ZOO)
	@site=$$($(ZOO)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  $(PY) -c 'import os, sys, sysconfig; print(os.path.relpath(sysconfig.get_path("purelib"), sys.argv[1]))' \
	  "$$site" > "$$site/torch.pth"
	@$(PY) -m pip --python $(ZOO)/bin/python install --quiet torchvision timm transformers
	@touch $@

zoo: build $(ZOO)/ready ## 280 models of torchvision, timm and transformers; takes hours, writes docs/models.md
	@$(IN_ENV) $(ZOO)/bin/python -m pytorch_bridge.testing.zoo $(ARGS)

# The grammars are for this alone, so they are kept apart from the packages of .venv.
GRAMMARS := build/mutants/packages
$(GRAMMARS)/ready: | setup
	@$(PY) -m pip install --quiet --target $(GRAMMARS) tree-sitter==0.26.1 tree-sitter-python==0.25.0 \
	  tree-sitter-go==0.25.0 tree-sitter-cpp==0.23.4
	@touch $@

mutants: build $(GRAMMARS)/ready ## break the code, one place at a time, and see whether a test fails
	@$(IN_ENV) PYTHONPATH=$(GRAMMARS) $(PY) -m pytorch_bridge.testing.mutants $(ARGS)

# Each other torch is installed in a folder of its own, as for test-torch; its library takes minutes.
INSTALLED_TORCH = $(shell sed -n "s/^__version__ = '\([^+']*\).*/\1/p" $(VENV)/lib/python3*/site-packages/torch/version.py)
TORCHES ?= $(shell $(PY) -c 'from pytorch_bridge.native import versions; print(*versions.SUPPORTED_TORCH)')
OTHER_TORCHES = $(filter-out $(INSTALLED_TORCH),$(TORCHES))
release: build ## write a wheel and a module proxy for users into dist/; TORCHES="2.15.0" chooses libraries
	@for torch in $(OTHER_TORCHES); do \
	  $(MAKE) --no-print-directory setup VENV=.venv-$$torch TORCH_VERSION=$$torch && \
	  GOTORCH_BUILD_DIR=build/$$torch .venv-$$torch/bin/python -m pytorch_bridge release --library || exit 1; done
	@rm -f dist/*.whl
	@$(BRIDGE) release $(foreach torch,$(OTHER_TORCHES),--add build/$(torch)/release)

doctor: ## what is installed, what is missing, what to type
	@if [ -x $(PY) ]; then $(BRIDGE) doctor; else $(PYTHON) -m pytorch_bridge doctor; fi

clean: ## remove what was built
	rm -rf build

distclean: clean ## remove what set-up installed as well
	rm -rf .venv .venv-*
