"""The options and words with which programs run other code than a prefix rule says. Tables only.

An option that ends in `?` counts only if its value may be a path. To add a program: one line.
Used by `overrides.py`, which explains how the options are matched.
"""

import re

from treadle.lib.text.word_set import word_set

_NODE_TEST_OPTIONS = (
    "--config --rootDir --root --setupFiles --setupFilesAfterEnv --globalSetup --globalTeardown "
    "--testRunner --runner --transform --resolver --reporters? --reporter? --testEnvironment? "
    "--environment? --watchPlugins --preset --projects --roots --modulePaths --moduleDirectories "
    "--moduleNameMapper --snapshotSerializers --testSequencer --prettierPath --require --import "
    "--loader --experimental-loader --node-option --node-options --plugin --rulesdir --parser? "
    "--resolve-plugins-relative-to --opts --package --preload --inspect --inspect-brk"
)
_PACKAGE_MANAGER_OPTIONS = (
    "--prefix --cwd --dir -C --script-shell --shell --node-options --userconfig --globalconfig "
    "--registry --global -g --location --init-module --cafile --ignore-scripts=false "
    "--global-dir --store-dir --virtual-store-dir --modules-dir --modules-folder --lockfile-dir "
    "--use-yarnrc --config. --pnpmfile --env-file --proxy --https-proxy --call -c"
)
_CLUSTER_OPTIONS = (
    "--kubeconfig --context --cluster --server -s --user --token --as --as-group --as-uid "
    "--client-certificate --client-key --certificate-authority --insecure-skip-tls-verify "
    "--cache-dir --username --password --raw --enable-exec --enable-helm --enable-alpha-plugins "
    "--helm-command --env --mount --network --load-restrictor --profile"
)
_OPTION_LINES: dict[str, str] = {
    "make gmake": "--directory --file --makefile -C -f",
    "npm pnpm yarn npx pnpx bunx": f"{_PACKAGE_MANAGER_OPTIONS} {_NODE_TEST_OPTIONS}",
    "bun": f"{_PACKAGE_MANAGER_OPTIONS} {_NODE_TEST_OPTIONS} -r -e -p --eval --print --define",
    "biome": "--config-path",
    "mocha": "--ui? -u?",
    "webpack vite rollup esbuild parcel gulp grunt next nuxt astro babel swc tsup nx turbo lerna":
        f"{_NODE_TEST_OPTIONS} -c --gulpfile --gruntfile -f --cwd --base --tasks "
        "--inject --tsconfig --api --token --team -r",
    "cargo": "--manifest-path -C",
    "go": "-C",
    "kubectl oc kustomize stern": _CLUSTER_OPTIONS,
    "helm helmfile":
        f"{_CLUSTER_OPTIONS} --kube-context --kube-apiserver --kube-token --kube-as-user "
        "--kube-ca-file --post-renderer --post-renderer-args --repository-config "
        "--repository-cache --registry-config --repo --ca-file --cert-file --key-file --keyring "
        "--helm-binary --set-file --output-dir --pass-credentials",
    "terraform tofu terragrunt":
        "-chdir -var-file -plugin-dir -state -state-out -backup -out -backend-config -from-module "
        "-destroy -replace -generate-config-out -test-directory --terragrunt-tfpath "
        "--terragrunt-config --terragrunt-working-dir --terragrunt-source",
    "uv uvx": "--with --with-editable --with-requirements --project --directory --index "
    "--index-url -i --extra-index-url --default-index --find-links -f --env-file --python? -p? "
    "--script -s --config-file --from --target -t --prefix --root --no-project "
    "--override --build-constraint --no-build-isolation --config-setting -C "
    "--allow-insecure-host --system --break-system-packages --editable -e --keyring-provider",
    "poetry pdm hatch rye pipenv pipx conda mamba pixi":
        "--directory -C --project -P -p --source --config -c --python --prefix --index-url "
        "--index -i --extra-index-url --pypi-mirror --pip-args --spec --preinstall --editable -e "
        "--channel --override-channels --file -f --cache-dir --data-dir --manifest-path --global",
    "pip pip3": "--target -t --prefix --root --index-url -i --extra-index-url --find-links -f "
    "--trusted-host --proxy --cert --client-cert --src --log --cache-dir --python "
    "--config-settings -C --global-option --build-option --install-option --editable -e "
    "--break-system-packages --report --no-build-isolation --keyring-provider --user",
    "gradle gradlew ./gradlew":
        "-p --project-dir -b --build-file -c --settings-file -I --init-script -g "
        "--gradle-user-home --include-build --project-cache-dir -D --system-prop "
        "--write-verification-metadata",
    "mvn mvnw ./mvnw mvnd": "-f --file -s --settings -gs --global-settings -t --toolchains -gt "
    "--global-toolchains -l --log-file -b --builder -ps --project-settings",
    "sbt ant lein": "-f -file -buildfile -lib -D -J -java-home -sbt-jar -sbt-dir -ivy -sbt-boot "
    "-propertyfile -logger -listener -inputhandler -main",
    "dotnet msbuild": "--settings -s --test-adapter-path --logger? --property --project "
    "--configfile --source -p: /p: /property: -property: "
    "--tool-path --add-source --packages -logger: /logger: -l: /l: -t: /t: -target: /target: "
    "--additionalprobingpath --additional-deps --runtimeconfig --depsfile -e --environment",
    "ninja samu": "-f",
    "meson": "--native-file --cross-file --wrapper --gdb-path --gdb --setup --destdir --prefix",
    "bazel bazelisk": "--run_under --script_path --override_repository --override_module "
    "--inject_repository --bazelrc --action_env --host_action_env --test_env --shell_executable "
    "--workspace_status_command --crosstool_top --package_path --host_jvm_args --repo_env "
    "--extra_toolchains --output_base --output_user_root --distdir --registry --remote_executor "
    "--remote_cache --bes_backend --server_javabase --credential_helper --tls_client_key "
    "--symlink_prefix --profile --explain --build_event_json_file --build_event_text_file "
    "--build_event_binary_file --execution_log_json_file --execution_log_binary_file",
    "just": "--shell --chooser --justfile -f --working-directory -d --set --shell-arg "
    "--shell-command --dotenv-path --dotenv-filename --command -c --edit --global-justfile -g",
    "task go-task": "--taskfile -t --dir -d --global -g --insecure --download",
    "rake": "-f --rakefile -r --require -I --libdir -R --rakelibdir -e --execute -E "
    "--execute-continue -p --execute-print -C --directory -g --system",
    "invoke inv fab": "-c --collection -r --search-root -f --config -i --identity -H --hosts -S",
    "bundle": "--gemfile --path --system --shebang --binstubs",
    "cucumber rubocop": "-r --require -I --options -O --default-path --pattern -P "
    "--format? -f? --config -c --plugin",
    "composer": "--working-dir -d --repository",
    "phpunit pest phpstan psalm phpcs rector paratest":
        "--configuration -c --bootstrap --printer --extension --include-path --loader "
        "--autoload-file -a --config --standard? --plugin --runner --phpunit --passthru-php -d",
    "glab": "--hostname --show-token -t --web --editor --with-token --body-file --input",
    "aws gcloud az": "--profile --endpoint-url --configuration --flags-file --access-token-file "
    "--account --impersonate-service-account --credential-file-override --no-verify-ssl "
    "--ca-bundle --cli-input-json --cli-input-yaml --subscription",
    "heroku doctl flyctl vercel netlify wrangler":
        "--access-token -t --token --context --config -c --api-url --local-config "
        "--global-config --auth --site --cwd --env-file",
    "ansible ansible-playbook ansible-lint":
        "-i --inventory -M --module-path --vault-password-file --vault-id --private-key "
        "--key-file --connection -c --become -b --become-method --extra-vars -e --playbook-dir "
        "--ssh-common-args --ssh-extra-args --sftp-extra-args --scp-extra-args --rules-dir -r",
    "swift xcodebuild swiftc zig":
        "--package-path --scratch-path --build-path -Xswiftc -Xcc -Xlinker -Xcxx --toolchain "
        "--swift-sdks-path --config-path --disable-sandbox -project -workspace -derivedDataPath "
        "-xcconfig -toolchain --zig-lib-dir --test-cmd --build-file --build-runner "
        "--prefix -load-plugin-library -load-plugin-executable "
        "-plugin-path -xctestrun",
    "flutter dart": "--packages --dart-define-from-file --local-engine --enable-vm-service "
    "--observe --directory -C --configuration",
    "cabal stack": "--with-ghc --with-compiler --with-gcc --with-hc-pkg --project-file "
    "--project-dir --stack-yaml --exec --ghc-options --config-file --test-wrapper "
    "--stack-root --extra-prog-path --with-ld --with-ar",
    "mix": "--require -r --eval -e --formatter",
    "sqlite3 duckdb": "-init -cmd -A",
    "nc ncat netcat": "-e -c --exec --sh-exec --lua-exec",
    "mysql mysqldump mariadb psql redis-cli mongosh":
        "--defaults-file --defaults-extra-file --init-command --pager --plugin-dir --tee --eval "
        "-e --file -f --command -c --variable -v --set --log-file -L",
    "javac kotlinc scalac": "-processor -processorpath --processor-path -J -Xplugin "
    "--processor-module-path -Xbootclasspath --patch-module --system",
    "sphinx-build mkdocs hugo jekyll": "-c -D --config-file -f --config --plugins --theme "
    "--source -s --themesDir --configDir",
}  # fmt: skip

# program -> option -> whether it counts only if its value may be a path
OVERRIDE_OPTIONS: dict[str, dict[str, bool]] = {
    name: {o.rstrip("?"): o.endswith("?") for o in options.split()}
    for names, options in _OPTION_LINES.items()
    for name in names.split()
}
# They choose another project: a rule that names only the program covers them.
PROJECT_OPTIONS = word_set(
    "-C -f --file --makefile --directory --dir --cwd --manifest-path --prefix --project "
    "--project-dir --working-directory --working-dir --rakefile --justfile --taskfile"
)
# Their options are whole words after one dash: letters cannot be joined.
WORD_OPTION_PROGRAMS = word_set(
    "go terraform tofu terragrunt mvn mvnw ./mvnw mvnd gradle gradlew ./gradlew sbt ant dotnet "
    "msbuild cmake ctest swift swiftc xcodebuild javac kotlinc scalac"
)
# Their long options may be abbreviated.
ABBREVIATION_PROGRAMS = word_set(
    "make gmake npm pip pip3 rake rspec flake8 pylint mypy isort ansible ansible-playbook coverage"
)
# Words after `--` are for a script of the project, which the rule allows with any words.
SCRIPT_RUNNERS = word_set("npm pnpm yarn bun")
_WORD_LINES: dict[str, str] = {
    "kubectl oc": r"(?:.*,)?(?i:secrets?)(?:[/,.].*)?|token|view|proxy|debug|edit|plugin",
    "gh glab": r"token|secret|api|extension|alias|config|ssh-key|gpg-key|setup-git|codespace",
    "gcloud": r"print-(?:access|identity)-token|config-helper|ssh|scp",
    "aws": r"configure|get-session-token|get-secret-value|get-login-password|get-token|ssh|"
    r"export-credentials",
    "az": r"get-access-token|secret|keys|show-connection-string|rest|run-command",
    "npm pnpm yarn bun": r"config|token|login|adduser|exec|dlx|explore|env",
    "pip pip3": r"config|download",
    "docker": r"plugin|context|login|save|export|commit|swarm|secret|machine|trust",
    "terraform tofu": r"console|login|output|state|import|taint|force-unlock",
    "helm": r"plugin|get|registry|push",
    "heroku doctl flyctl vercel netlify wrangler": r"config(?::get)?|auth(?::token)?|"
    r"token|env|secrets?|ssh",
    "cargo": r"\+.*|login|install|publish|owner",
    "poetry pdm hatch": r"config|source|publish|self|plugin",
    "gem bundle": r"config|env|plugin|server|console|open",
    "composer": r"config|exec|global",
    "pytest py.test": r"@.*",
    "tox": r"exec|e|devenv",
    "hyperfine nodemon watchexec": r".+",
    "go": r"generate|tool|.*@.*",
    "mvn mvnw ./mvnw mvnd": r"exec:.*|antrun:.*|[^-].*:.*:.*",
}
# Subcommands that print secrets or run other code.
OVERRIDE_WORDS = {
    name: re.compile(pattern) for names, pattern in _WORD_LINES.items() for name in names.split()
}
_TARGET_LINES = {  # programs whose operands are targets or tasks, and their options with a value
    "make gmake": "-j --jobs -l --load-average -o -W -O",
    "ninja samu": "-j -k -l -d",
    "gradle gradlew ./gradlew": "-x --exclude-task --tests --max-workers --console --warning-mode",
    "mvn mvnw ./mvnw mvnd": "-pl --projects -P -T --threads -rf --resume-from -D --define",
    "turbo": "--filter -F --concurrency --output-logs --log-order",
    "ant sbt rake task go-task gulp grunt invoke inv fab just mage doit scons waf": "",
}
TARGET_PROGRAMS = {
    name: word_set(options) for names, options in _TARGET_LINES.items() for name in names.split()
}
# `uv run pytest …`: after these words follows another program.
RUNNER_WORDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch", "rye", "pipenv", "pixi"), word_set("run")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), word_set("exec x dlx run")),
    "bundle": word_set("exec"), "coverage": word_set("run"),
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx", "nyc", "c8"), word_set("")),
}  # fmt: skip
