"""The safe options of programs that talk to containers, clusters and servers. Tables only.

`safe_options.py`, which uses them, says what the marks mean.
"""

SERVICE_LINES: dict[str, str] = {
    # Other names and groups of docker (`podman`, `docker container run`) meet these lines.
    "docker run,docker create":
        "-i -t -d --interactive --tty --detach --rm --init --read-only -q --no-healthcheck -P "
        "--publish-all --replace --name= -w= --workdir= -u= --user= -p= --publish= --expose= -h= "
        "--hostname= --entrypoint= --platform= --pull= --restart= -m= --memory= --memory-swap= "
        "--cpus= -c= --cpu-shares= --cpuset-cpus= --pids-limit= --shm-size= --ulimit= --tmpfs= "
        "-l= --label= --dns= --add-host= --network-alias= --link= --stop-timeout= --stop-signal= "
        "--health-cmd= --health-interval= --health-retries= --health-timeout= --cap-drop= -a= "
        "--attach= --sig-proxy",
    "docker exec": "-i -t -d --interactive --tty --detach -u= --user= -w= --workdir=",
    "docker build":
        "-t= --tag= -f= --file= --target= --no-cache --pull --progress= --platform= --label= "
        "--load --rm --force-rm -q --check --compress --shm-size= -m= --memory= --add-host=",
    "docker cp": "-a --archive -q",
    "docker rm,docker rmi,docker stop,docker start,docker restart,docker kill,docker pause,"
    "docker unpause,docker wait,docker rename,docker pull,docker push,docker tag,docker prune,"
    "docker system,docker volume,docker network":
        "-f --force -t= --time= --timeout= -s= --signal= -a --all --all-tags -v --volumes -q "
        "--platform= --filter= --format=",
    "docker ps,docker ls,docker list,docker images,docker volume ls,docker network ls":
        "-a --all -q -l -n= --last --latest -s --size --format -f= --filter --no-trunc "
        "--digests --quiet --tree",
    "docker logs,docker compose logs":
        "-f --follow --tail -n= --since --until -t --timestamps --details --no-color "
        "--no-log-prefix --index -l",
    "docker compose":
        "--profile= -p= --project-name= --ansi= --progress= --parallel= --compatibility -d "
        "--detach --build --rm -T --remove-orphans --no-deps",
    "docker compose run,docker compose exec":
        "--rm -d --detach --no-deps --build -T --no-TTY -i -t --interactive --service-ports -u= "
        "--user= -w= --workdir= --name= --entrypoint= -q --quiet-pull --remove-orphans "
        "--use-aliases --index=",
    "docker compose ps,docker compose ls,docker compose images,docker compose top,"
    "docker compose port,docker compose version":
        "-a --all -q --services --status --format --filter --no-trunc --orphans --quiet "
        "--index --protocol",
    "docker compose up,docker compose down,docker compose restart,docker compose stop,"
    "docker compose start,docker compose pull,docker compose build,docker compose create":
        "-d --detach --build --no-build --wait --wait-timeout --no-deps --remove-orphans "
        "--force-recreate --no-recreate -t= --timeout --no-cache --pull --quiet-pull "
        "--no-log-prefix --abort-on-container-exit --exit-code-from --scale --progress "
        "--no-start --no-color --attach --attach-dependencies -q -y",
    "docker compose rm,docker compose kill": "-f --force -s= --stop -v",
    "docker inspect,docker stats,docker top,docker version,docker info,docker history,"
    "docker diff,docker port":
        "-f= --format --type -s --size --no-stream --no-trunc -a --all -q -H --human",
    "kubectl logs,oc logs":
        "-n= --namespace -l= --selector -c= --container --tail --since --since-time -f --follow -p "
        "--previous --timestamps --all-containers --prefix --limit-bytes --max-log-requests "
        "--ignore-errors --all-pods",
    "kubectl get,kubectl describe,kubectl top,kubectl explain,"
    "kubectl api-resources,kubectl rollout status,kubectl version,kubectl wait,"
    "kubectl events,oc get,oc describe":
        "-n= --namespace -A --all-namespaces -o= --output -l= --selector -w --watch "
        "--show-labels --sort-by --field-selector --no-headers --ignore-not-found -L= "
        "--label-columns --chunk-size "
        "--watch-only --show-managed-fields --show-events --containers --recursive "
        "--api-version --show-kind --for --types --timeout --api-group --namespaced --verbs "
        "--short --client --revision --ignore-errors --subresource",
    "terraform plan,terraform validate,terraform fmt,terraform init,terraform show,"
    "terraform version,terraform providers,terraform graph,tofu plan,tofu validate,"
    "tofu fmt,tofu show":
        "-no-color -check -recursive -diff -write -list -json -input -lock -lock-timeout "
        "-refresh -refresh-only -compact-warnings -parallelism -target -detailed-exitcode -var "
        "-upgrade -backend -reconfigure -get -readonly -lockfile -no-tests -concise -type "
        "-draw-cycles",
    "helm template,helm lint,helm list,helm status,helm history,helm show,helm version,"
    "helm search":
        "-n= --namespace -f= --values --set --set-string --set-json --debug --dry-run --strict "
        "--quiet -q --with-subcharts --include-crds --skip-tests --show-only -s= "
        "--name-template --version --kube-version --api-versions -a= --validate --is-upgrade "
        "--no-hooks -A --all-namespaces -o= --output -l= --selector --skip-schema-validation "
        "--release-name --devel -r --max -m= --all",
    "gh pr,gh issue,gh run,gh repo view,gh repo list,gh release view,gh release list,"
    "gh workflow view,gh workflow list,gh label list,gh search,gh status,gh cache list":
        "--json --jq -q= --limit -L= --state -s= --label -l= --author -A= --assignee -a= "
        "--search -S= --comments -c --repo -R= --log --log-failed --job -j= --attempt "
        "--exit-status --name-only --patch --color --base -B= --head -H= --draft -d --app "
        "--milestone -m= --mention --workflow -w= --branch -b= --user -u= --event -e= --status "
        "--required --watch --interval -i= --fail-fast --order --sort --owner --language "
        "--yaml --ref -r= --compact --all --exclude-drafts --created --commit --verbose -v",
    "gh api": "--jq -q= --paginate --slurp --cache -i --include -p= --preview",
    "gh pr merge,gh pr close,gh pr reopen,gh pr ready,gh pr review,gh issue close,gh issue reopen":
        "-s --squash -m --merge -r --rebase -d --delete-branch --auto --subject -b= --body -a "
        "--approve -c= --comment --request-changes -R= --repo --reason --undo",
    "gh release create,gh release edit":
        "-n= --notes -t= --title --generate-notes -d --draft -p --prerelease --latest --target "
        "--verify-tag --notes-start-tag --notes-from-tag -R= --repo",
    "gh run rerun,gh run cancel": "--failed -d -j= --job= -R= --repo=",
    # Another server is for a rule that names none.
    "curl":
        "-s -S -f -i -I -v -L -k -g -G -N -O -J -4 -6 -0 -1 -j -q -Z --show-error --fail "
        "--fail-with-body --fail-early --include --head --location --insecure --globoff --get "
        "--no-buffer --remote-name --remote-header-name --compressed --http1.0 --http1.1 --http2 "
        "--http3 --tlsv1.2 --tlsv1.3 --ipv4 --ipv6 --no-progress-meter --parallel --path-as-is "
        "--create-dirs --basic --digest --retry-all-errors --retry-connrefused --raw -H= --header= "
        "-d= --data= --data-raw= --data-ascii= --data-binary= --json= -X= --request= -A= "
        "--user-agent= -e= --referer= -u= --user= -m= --max-time= --connect-timeout= --retry= "
        "--retry-delay= --retry-max-time= -w= --write-out= -r= --range= --limit-rate= "
        "--max-redirs= --max-filesize= -o= --output= --output-dir= -D= --dump-header= -c= "
        "--cookie-jar= --oauth2-bearer= --aws-sigv4= -C= --continue-at= -y= -Y= -z= --form-string= "
        "--url-query= -x= --proxy= --resolve= --connect-to= --url= --interface= --proto= "
        "--preproxy= --socks5= --socks5-hostname= --doh-url= --next -: --cacert= --noproxy= -n",
}  # fmt: skip
