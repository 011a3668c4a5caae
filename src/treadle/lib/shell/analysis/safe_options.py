"""The options with which a program does what a prefix rule says, and nothing else. Tables only.

`Bash(node --test:*)` covers the options in the line of `node --test`; an option that is not there
asks. A line is for a program, or for one with its first words, which wins. An option that ends in
`=` is a letter with a value, which may be joined (`-j4`); one that ends in `!` writes a file, and
asks if that is not a report or another file that tools write. Other paths in values are checked
elsewhere: a path outside of the folder, or a protected one, asks whatever the option is. Used by
`overrides.py`.
"""

import re
from collections.abc import Sequence

from treadle.lib.shell.analysis.service_options import SERVICE_LINES
from treadle.lib.text.word_set import word_set

_COMMON = (
    "--help --version --verbose --quiet --silent --no-color --color --colour --debug --dry-run "
    "--watch --no-progress --no-interactive --non-interactive"
)
_NODE_TESTS = (
    "-t= --testNamePattern --coverage --ci --runInBand -i -w= --maxWorkers --bail -b "
    "--watchAll --watchAll=false --passWithNoTests --updateSnapshot -u --verbose --silent "
    "--json --listTests --onlyChanged -o --onlyFailures -f --findRelatedTests "
    "--testPathPattern --testPathPatterns --testPathIgnorePatterns --forceExit "
    "--detectOpenHandles --no-coverage --no-cache --cache --run --ui --no-watch --threads "
    "--no-threads --pool? --grep -g= --timeout --retries --workers --headed --headless "
    "--project? --browser --spec --e2e --component --reporter? --reporters? --shard --changed "
    "--changedSince --errorOnDeprecated --expand -e --showConfig --colors --no-colors --exit "
    "--recursive --parallel --jobs -j= --dir --update --bail=1 --allowOnly --hideSkippedTests "
    "--typecheck --poolOptions --testEnvironment? --environment? --isolate --no-isolate "
    "--no-file-parallelism --maxConcurrency --logHeapUsage --testTimeout --clearMocks "
    "--resetMocks --collectCoverage --collectCoverageFrom --coverageReporters? "
    "--coverage.enabled --coverage.reporter? -x -h -s"
)
_LINES: dict[str, str] = {
    "node --test":
        "--test --test-only --test-name-pattern= --test-skip-pattern= --watch "
        "--test-concurrency= --test-reporter? --test-timeout= --test-force-exit --test-shard= "
        "--experimental-test-coverage --experimental-strip-types --enable-source-maps "
        "--no-warnings --trace-warnings --trace-deprecation --throw-deprecation "
        "--no-deprecation --expose-gc --max-old-space-size= --stack-trace-limit= "
        "--test-coverage-include= --test-coverage-exclude=",
    "npm test,npm run,npm run-script,npm t,npm start,pnpm test,pnpm run,pnpm t,yarn test,"
    "yarn run,bun test,bun run":
        f"{_NODE_TESTS} "
        "-w= --workspace --workspaces -ws --if-present --filter --recursive -r --parallel "
        "--stream --aggregate-output --no-bail --workspace-concurrency "
        "--include-workspace-root --loglevel --foreground-scripts --fix --noEmit -F= "
        "--rerun-each --only --todo --smol --bun --preserve-symlinks",
    "npm ls,npm list,npm outdated,npm view,npm why,npm explain,npm audit,npm fund,"
    "npm query,pnpm ls,pnpm list,pnpm outdated,pnpm why,yarn list,yarn why,yarn outdated,"
    "yarn info":
        "--all -a --json --depth --long -l --parseable -p --production --prod -P --dev -D "
        "--omit --include --only-prod --link --package-lock-only --workspaces -w= --workspace "
        "--no-optional -r --recursive --audit-level --pattern --compatible --no-table --format",
    "npm ci,npm install,npm i,npm add,npm update,npm uninstall,pnpm install,pnpm i,"
    "pnpm add,yarn install,yarn add,bun install,bun add":
        "--save-dev -D --save -S --save-exact -E --save-optional -O --no-save --no-audit "
        "--no-fund --ignore-scripts --legacy-peer-deps --frozen-lockfile --immutable "
        "--prefer-offline --offline --omit --include --production --dev --force "
        "--package-lock-only --no-package-lock --no-optional --exact -w= --workspace "
        "--workspaces --no-frozen-lockfile --audit -P --peer",
    "tsc":
        "--noEmit -p= --project --watch -w --build -b --pretty --strict --skipLibCheck "
        "--listFiles --incremental --declaration -d --emitDeclarationOnly --target -t= "
        "--module -m= --lib --jsx --esModuleInterop --showConfig --diagnostics "
        "--extendedDiagnostics --traceResolution --clean --force -f --noEmitOnError "
        "--sourceMap --outDir! --outFile! --rootDir --listEmittedFiles --dry --explainFiles "
        "--moduleResolution --resolveJsonModule --allowJs --checkJs --preserveWatchOutput "
        "--noUnusedLocals --noUnusedParameters --noImplicitAny --strictNullChecks "
        "--isolatedModules -h -v",
    "jest,vitest,mocha,ava,tap,nyc,c8,cypress,playwright,karma": _NODE_TESTS,
    "eslint,stylelint":
        "--fix --fix-dry-run --fix-type --ext --max-warnings --quiet --cache --cache-location! "
        "--cache-strategy --no-cache --format? -f? --formatter? --rule "
        "--report-unused-disable-directives --no-error-on-unmatched-pattern --ignore-pattern "
        "--color --no-inline-config --print-config --debug --stats --no-warn-ignored "
        "--exit-on-fatal-error --allow-empty-input --ignore-path --no-ignore --env --global "
        "--no-eslintrc -h -v --aei",
    "prettier,biome check,biome lint,biome format,biome ci":
        "--write -w --check -c --list-different -l --ignore-unknown -u --ignore-path "
        "--log-level --loglevel --no-error-on-unmatched-pattern --single-quote --no-semi "
        "--tab-width --print-width --trailing-comma --cache --no-color --prose-wrap "
        "--arrow-parens --end-of-line --use-tabs --stdin-filepath --fix --apply --unsafe "
        "--diagnostic-level --error-on-warnings --max-diagnostics --changed --staged --since "
        "--files-ignore-unknown",
    "pytest,py.test":
        "-q -v -x -s -l -k= -m= -n= --tb --maxfail --lf --ff --nf --sw --last-failed "
        "--failed-first --new-first --stepwise --stepwise-skip --exitfirst --durations "
        "--durations-min --cov --cov-report! --cov-branch --cov-fail-under --cov-append "
        "--no-cov --cov-context --collect-only --co --ignore --ignore-glob --deselect "
        "--capture --no-header --no-summary --showlocals --full-trace --color --strict "
        "--strict-markers --strict-config --runxfail --pdb --trace --setup-show --setup-plan "
        "--setup-only --fixtures --markers --numprocesses --dist --maxprocesses --timeout "
        "--timeout-method --reruns --reruns-delay --randomly-seed --random-order "
        "--benchmark-only --benchmark-skip --benchmark-disable --junitxml! --junit-xml! --debug! "
        "--log-cli-level --log-level --log-file-level --log-disable --show-capture -r= "
        "--asyncio-mode -W= --disable-warnings --disable-pytest-warnings --cache-clear "
        "--cache-show --doctest-modules --snapshot-update --keep-duplicates --verbosity "
        "--noconftest --forked --looponfail -f --html! --self-contained-html --headed --count "
        "--flake-finder --update-snapshots --run-slow --runslow --slow --integration "
        "--no-migrations --reuse-db --create-db --code-highlight --quiet-summary -h",
    "ruff":
        "--fix --unsafe-fixes --fix-only --diff --check --select --ignore --extend-select "
        "--extend-ignore --exclude --extend-exclude --force-exclude --output-format "
        "--statistics -e -n -q -s -v --line-length --target-version --no-cache --show-fixes "
        "--show-files --show-settings --preview --no-preview --exit-zero "
        "--exit-non-zero-on-fix --respect-gitignore --add-noqa --no-fix --watch -w "
        "--per-file-ignores --no-respect-gitignore --isolated --range --explain --fixable "
        "--unfixable --stdin-filename --exit-non-zero-on-format --all --quiet --silent",
    "mypy,dmypy":
        "--strict --ignore-missing-imports --show-error-codes --no-error-summary --pretty -v "
        "--no-incremental --check-untyped-defs --disallow-untyped-defs --follow-imports "
        "--exclude -p= --package -m= --module --namespace-packages --explicit-package-bases "
        "--python-version --platform --warn-unused-ignores --warn-return-any "
        "--no-implicit-optional --show-traceback --disable-error-code --enable-error-code "
        "--show-column-numbers --allow-untyped-defs -i --hide-error-context --no-color-output "
        "--show-error-context --warn-unreachable --local-partial-types --no-site-packages "
        "--implicit-reexport --no-implicit-reexport --strict-equality --txt-report! "
        "--any-exprs-report! --html-report! --cobertura-xml-report! --junit-xml! --non-interactive "
        "--no-strict-optional",
    "black":
        "--check --diff --color -l= --line-length --target-version -t= -q -v --exclude "
        "--include --extend-exclude --force-exclude --skip-string-normalization -S "
        "--skip-magic-trailing-comma -C --preview --fast --safe --workers -W= "
        "--required-version --no-cache --stdin-filename --pyi",
    "isort":
        "--check --check-only -c --diff --profile -l= --line-length --skip -s= --skip-glob "
        "--force-single-line --color -q -v --atomic --filter-files --gitignore --extend-skip "
        "--df --extend-skip-glob --combine-as --float-to-top --jobs -j= --lines-after-imports "
        "-m= --multi-line -p= --project",
    "flake8,pycodestyle,pydocstyle,pylint,bandit,pyflakes":
        "--max-line-length --max-complexity --select --ignore --extend-ignore --extend-select "
        "--exclude --extend-exclude --statistics --count --show-source -j= --jobs --format? "
        "--output-format? -q -v --disable --enable --errors-only -E --score --reports -r -l "
        "--fail-under --per-file-ignores --disable-noqa --reports=n --score=n --recursive -ll "
        "-i --severity-level --confidence-level -x= --skip -s= -t= --convention",
    "tox":
        "-e= -p= -q -v -s= --session --sessions -k= -t= --tags --list -l --listenvs "
        "--list-dependencies --parallel -r --recreate --skip-missing-interpreters --notest "
        "--no-recreate-pkg -f= --factor --parallel-live -o "
        "--develop",
    "nox":
        "-s= --session --sessions -k= -t= --tags -l --list -p= --python= -e= -r -R -x -v -N "
        "--reuse-existing-virtualenvs --no-install --stop-on-first-error --no-stop-on-first-error",
    "coverage":
        "-m= --show-missing --source --omit --include --branch --fail-under --skip-covered "
        "--append -a --skip-empty --sort --precision --format --ignore-errors -i "
        "--parallel-mode -p --keep --concurrency --timid --data-file! --contexts -d! "
        "--directory! --title --pretty-print -q -o! --show-contexts",
    "pre-commit run,pre-commit":
        "--all-files -a --files --from-ref --to-ref --hook-stage --show-diff-on-failure -v "
        "--source --origin -s= -o= --color",
    "pip list,pip show,pip freeze,pip check,pip3 list,pip3 show,pip3 freeze,pip3 check,"
    "pip index,pip debug":
        "-o --outdated -u --uptodate --format --not-required --exclude --local -l --files -f "
        "-v --pre --exclude-editable -q --all --disable-pip-version-check --no-input --columns "
        "--include-editable",
    "uv run,uv sync,uv pip list,uv tree,uv lock,uv build":
        "-q -v --quiet --verbose --frozen --locked --all-extras --extra= --group= "
        "--only-group= --no-group= --dev --no-dev --all-groups --no-sync --offline --package= "
        "--python? -p? --all-packages --exact --isolated --no-progress --upgrade -U -n --no-cache "
        "-m= --module= --depth= --outdated --no-dedupe --invert --only-dev --wheel --sdist --check",
    "poetry run,pdm run,hatch run,rye run,pipenv run,pixi run":
        "-q -v -vv -vvv -n --no-interaction --no-ansi --no-plugins --quiet --verbose --frozen "
        "--locked -e= --environment",
    "gh pr create,gh pr edit,gh pr comment,gh issue create,gh issue edit,gh issue comment":
        "-t= --title -b= --body -B= --base -H= --head -d --draft -l= --label -a= --assignee "
        "-r= --reviewer -m= --milestone --fill --fill-first --fill-verbose --add-label "
        "--remove-label --add-assignee --remove-assignee -R= --repo --no-maintainer-edit",
    "cargo":
        "--target-dir "
        "-p= --package --workspace --all --exclude --lib --bin --bins --example --examples "
        "--test --tests --bench --benches --all-targets --doc --features -F= --all-features "
        "--no-default-features --release -r --profile --target? -j= --jobs --keep-going "
        "--no-fail-fast --no-run --message-format --locked --frozen --offline -v -vv -q "
        "--ignore-rust-version --timings --future-incompat-report --open --no-deps "
        "--document-private-items --check --fix --allow-dirty --allow-staged -e= --edges -i= "
        "--invert --depth -d --duplicates --prefix --prune --format-version --no-dev-deps "
        "--unit-graph -D= -W= -A= --emit --edition -l --color -f= --format -n --dry-run "
        "--nocapture --test-threads --ignored --include-ignored --exact --skip --show-output",
    "go":
        "-v -race -count= -run= -short -timeout= -cover -coverprofile! -covermode= -coverpkg= "
        "-bench= -benchmem -benchtime= -parallel= -p= -failfast -json -list= -cpu= -tags= "
        "-mod= -trimpath -a -n -x -work -buildvcs= -skip= -shuffle= -fuzz= -fuzztime= "
        "-vet= -c -i -m -u -f= -deps -find -test -export -e -compiled -versions -retracted "
        "-args -asan -msan -buildmode= -cpuprofile! -memprofile! -blockprofile! -mutexprofile! "
        "-trace! -outputdir! -all -src -go= -compat= -diff -changed -cache -testcache "
        "-modcache -fuzzcache -printf -copylocks -shadow -d -t -pgo= -fullpath",
    "gofmt,goimports,gofumpt":
        "-l -d -w -s -e -extra -local",
    "golangci-lint":
        "--fix --timeout -v --fast --new --new-from-rev --enable -E= --disable -D= -p= "
        "--enable-only --disable-all --tests --out-format! --max-issues-per-linter "
        "--max-same-issues --concurrency -j= --build-tags --skip-dirs --sort-results "
        "--issues-exit-code --allow-parallel-runners --print-issued-lines --print-linter-name "
        "--go --fast-only --show-stats --no-config",
    "make,gmake":
        "-j= -k -s -n -B -i -q -d -w -r -R -t -p --keep-going --jobs --silent --just-print "
        "--always-make --no-print-directory -l= -O --output-sync --load-average --trace "
        "--question -S --stop --warn-undefined-variables --ignore-errors --touch -v "
        "--print-data-base --recon",
    "cmake":
        "-S= -B= -G= -A= -T= -D= -U= --build -j= --parallel --target -t= --config "
        "--clean-first --verbose -v --preset --list-presets -L -LA -LH -LAH -N --fresh "
        "--log-level --no-warn-unused-cli -W= --graphviz! --trace --debug-find --debug-output "
        "--warn-uninitialized --workflow --system-information --use-stderr "
        "--resolve-package-references --version",
    "ninja,samu":
        "-C= -j= -k= -l= -n -v -d= -w= --verbose --quiet",
    "ctest":
        "--test-dir --output-on-failure -R= --tests-regex -E= --exclude-regex -L= "
        "--label-regex -LE= --label-exclude -j= --parallel -V -VV -N --show-only "
        "--rerun-failed --verbose --extra-verbose --timeout -C= --build-config --preset "
        "--repeat --stop-on-failure --schedule-random -I= -Q -O! --output-log! --output-junit! "
        "--no-tests --progress --stop-time --list-presets --quiet -U --union "
        "--repeat-until-fail",
    "clang-format":
        "-i -n --dry-run --Werror -Werror --style -style --fallback-style --lines -lines "
        "--assume-filename --sort-includes --verbose --files --output-replacements-xml "
        "-output-replacements-xml --ferror-limit --length --offset --cursor",
    "clang-tidy":
        "-p= --checks -checks --fix -fix --fix-errors -fix-errors --quiet -quiet "
        "--header-filter -header-filter --warnings-as-errors -warnings-as-errors --list-checks "
        "-list-checks --line-filter --format-style --use-color --system-headers "
        "--explain-config --dump-config --verify-config --fix-notes --exclude-header-filter",
    "rspec":
        "-f? --format? -b --backtrace -p --profile --fail-fast --no-fail-fast --seed --order= -t= "
        "--tag= -e= --example= -E= --only-failures -n --next-failure --bisect --dry-run -w "
        "--warnings --force-color --no-color -c --color --failure-exit-code= -o! --out! "
        "-P? --pattern?",
    "dotnet":
        "-c= --configuration --no-build --no-restore --filter -v= --verbosity --nologo -f= "
        "--framework --runtime --list-tests -l? --logger? --collect --blame --force --no-cache "
        "--interactive --no-incremental --self-contained --no-dependencies -t --arch --os -o! "
        "--output! --results-directory! --include-transitive --outdated --vulnerable -m --tl "
        "--verify-no-changes --severity --diagnostics --include --exclude",
    "deno":
        "--filter --fail-fast --shuffle --parallel --watch --no-check --check --doc --trace-leaks "
        "--permit-no-files --ignore --reporter? --quiet -q --no-run --clean --hide-stacktraces "
        "--no-remote --no-npm --cached-only --frozen --no-lock --allow-read --fix --line-width "
        "--indent-width --single-quote --no-semicolons --prose-wrap --rules --json --compact "
        "--ext= --unstable --no-prompt --coverage! --junit-path!",
    "swift":
        "-c= --configuration --filter --skip --parallel --num-workers --enable-code-coverage "
        "--skip-build -v --verbose -q --build-tests --target --product -j= --jobs "
        "--very-verbose --xunit-output! --list-tests --enable-xctest --disable-xctest",
    "ansible-lint":
        "-q -v -p --parseable --profile --strict -x= --skip-list -t= --tags --offline "
        "--nocolor --exclude -w= --warn-list --show-relpath --progressive -L --list-rules -T "
        "--list-tags --format -f= --fix --write",
    "yamllint":
        "-s --strict -f= --format --no-warnings --list-files",
    "shellcheck":
        "-x -s= --shell -e= --exclude -i= --include -S= --severity -f= --format -o= --enable "
        "-C= -a --check-sourced --external-sources -W= --wiki-link-count --norc --color",
    "hadolint":
        "--ignore -f= --format -t= --failure-threshold --no-fail --strict-labels "
        "--trusted-registry --no-color --verbose",
    "mkdir":
        "-p -v -m= --parents --mode",
}  # fmt: skip


class SafeOptions:
    """The safe options of one line. `is_word`: options are words after one or two dashes."""

    def __init__(self, text: str, *, is_word: bool = False) -> None:
        options = f"{_COMMON} {text}".split()
        self._is_word = is_word
        self._values = {o.rstrip("=?!"): o[-1] for o in options if o[-1] in "=?!"}
        self._flags = frozenset(options) - self._values.keys()

    def covers(self, text: str, following: str) -> bool:
        """Whether an option is one of them. `following`: the next word."""
        if text in self._flags:
            return True
        head, equals, value = text.partition("=")
        if not equals and text.startswith("--"):
            head, equals, value = text.partition(":")  # as dotnet writes it
        if self._is_word and head.startswith("--"):
            head = head[1:]
        if head in self._flags:
            return True  # `--color=always`: paths in it are checked elsewhere
        if head in self._values:
            return self._is_safe_value(head, value if equals else following)
        if self._is_word or text.startswith("--"):
            return False
        for at, letter in enumerate(text[1:], 1):  # joined letters, the last one with its value
            option = f"-{letter}"
            if option in self._values:
                return self._is_safe_value(option, text[at + 1 :] or following)
            if option not in self._flags:
                return at > 1 and text[at:].isdigit()  # `-O2`
        return True

    def _is_safe_value(self, option: str, value: str) -> bool:
        if self._values[option] == "!":
            return _is_written_file(value)
        return self._values[option] == "=" or not MAY_BE_PATH.search(value)

    def takes_next(self, text: str) -> bool:
        """Whether the next word is the value of this option."""
        if text.startswith("--") or self._is_word or len(text) == 2:
            head = text[1:] if self._is_word and text.startswith("--") else text
            return head in self._values
        return f"-{text[-1]}" in self._values


MAY_BE_PATH = re.compile(r"/|\\|\.(?!\d)")
_RESULT_TYPES = word_set("out prof pprof log lcov sarif dot")
_REPORT_TYPES = word_set("xml html json txt csv info")
_RESULT_FOLDERS = word_set(
    "build dist out output target report reports results test-results coverage htmlcov log logs "
    "tmp artifacts publish .cache"
)
_RESULT_NAME = re.compile(r"report|result|cov|junit|mypy|pytest|lint")
_CACHE_NAME = re.compile(r"\.coverage|\.\w+cache$")
_FORMATS = word_set(
    "term term-missing skip-covered xml html json lcov annotate markdown text tab line-number "
    "colored-line-number colored-tab checkstyle code-climate junit-xml github-actions"
)


def _is_written_file(value: str) -> bool:
    """Whether the value of an option that writes a file is a format, or the name of a file that
    tools write; a format may stand before it: `xml:build/coverage.xml`."""
    path = value.rpartition(":")[2]
    if path[:1] in ("-", "") or path in _FORMATS:
        return True  # the name is the program's own
    *folders, name = path.split("/")
    stem, dot, kind = name.rpartition(".")
    if kind in _RESULT_TYPES or _CACHE_NAME.match(name):
        return True
    if dot and kind not in _REPORT_TYPES:
        return False
    is_result = _RESULT_NAME.search(stem or kind) is not None
    return is_result or not _RESULT_FOLDERS.isdisjoint((*folders, name))


SAFE_OPTIONS: dict[str, str] = {
    name: options
    for names, options in (_LINES | SERVICE_LINES).items()
    for name in names.split(",")
}
SAFE_PROGRAMS = word_set(" ".join(name.partition(" ")[0] for name in SAFE_OPTIONS))
_MAX_WORDS = max(name.count(" ") for name in SAFE_OPTIONS)
_made: dict[tuple[str, bool], SafeOptions] = {}


def find_safe_options(
    name: str, words: Sequence[str], *, is_word: bool = False
) -> SafeOptions | None:
    """The safe options of a program with these first words; None if there is no line for it."""
    if name not in SAFE_PROGRAMS:
        return None
    for count in range(min(_MAX_WORDS, len(words)), -1, -1):
        line = " ".join((name, *words[:count]))
        if line in SAFE_OPTIONS:
            if (line, is_word) not in _made:
                _made[line, is_word] = SafeOptions(SAFE_OPTIONS[line], is_word=is_word)
            return _made[line, is_word]
    return None
