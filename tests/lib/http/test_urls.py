import base64
import ssl

import pytest

from treadle.lib.http.tls_context import make_tls_context
from treadle.lib.http.transport import ProxyFailed
from treadle.lib.http.urls import find_proxy, parse_route

PROXY = {"HTTPS_PROXY": "http://proxy.test:3128", "HTTP_PROXY": "http://proxy.test:3128"}


def proxied(host: str, port: int = 443, **environ: str) -> bool:
    return find_proxy("https", host, port, {**PROXY, **environ}) is not None


def test_a_url_becomes_a_route():
    route = parse_route("https://api.example.com/v1/messages?beta=true", {})
    assert route.key == ("https", "api.example.com", 443, None)
    assert (route.target, route.host_header) == ("/v1/messages?beta=true", "api.example.com")
    assert parse_route("http://[::1]:8080", {}).host_header == "[::1]:8080"
    assert parse_route("http://[::1]:8080", {}).target == "/"


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://x/", "http:///v1", "http://a b/", "http://x/\r\nh: v"]
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError):
        parse_route(url, {})


def test_a_refused_url_does_not_show_its_password():
    with pytest.raises(ValueError) as caught:
        parse_route("https://user:secret@host/", {})
    assert "secret" not in str(caught.value)


def test_lower_case_variables_win_and_all_proxy_is_the_last_resort():
    environ = {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:2", "ALL_PROXY": "all:3"}
    proxy = find_proxy("https", "example.com", 443, environ)
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("low", 1)
    proxy = find_proxy("http", "example.com", 80, environ)
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("all", 3)


def test_under_cgi_the_upper_case_http_proxy_is_not_trusted():
    environ = {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}
    assert find_proxy("http", "example.com", 80, environ) is None


def test_user_and_password_of_the_proxy_become_a_header():
    proxy = find_proxy("http", "example.com", 80, {"http_proxy": "http://me:p%40ss@proxy:8080"})
    assert proxy is not None
    assert proxy.authorization == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_a_proxy_of_another_kind_is_named():
    with pytest.raises(ProxyFailed, match="socks5"):
        find_proxy("https", "example.com", 443, {"all_proxy": "socks5://proxy:1080"})


def test_no_proxy_names_hosts_domains_ports_networks_or_all():
    assert proxied("api.example.com")
    assert not proxied("api.example.com", NO_PROXY="example.com")
    assert not proxied("api.example.com", NO_PROXY="other.test, .example.com")
    assert not proxied("api.example.com", NO_PROXY="*.example.com")
    assert proxied("notexample.com", NO_PROXY="example.com")
    assert not proxied("example.com", 8443, NO_PROXY="example.com:8443")
    assert proxied("example.com", 443, NO_PROXY="example.com:8443")
    assert not proxied("10.1.2.3", NO_PROXY="10.0.0.0/8")
    assert proxied("11.1.2.3", NO_PROXY="10.0.0.0/8")
    assert not proxied("anything", no_proxy="*")


def test_no_proxy_takes_ipv6_addresses_in_every_spelling():
    whole = "2001:db8:0:0:0:0:0:1"
    assert not proxied("2001:db8::1", NO_PROXY="2001:db8::1")
    assert not proxied("2001:db8::1", NO_PROXY=whole)
    assert not proxied(whole, NO_PROXY="[2001:DB8::1]")
    assert not proxied("2001:db8::1", 8443, NO_PROXY="[2001:db8::1]:8443")
    assert proxied("2001:db8::1", 443, NO_PROXY="[2001:db8::1]:8443")
    assert proxied("2001:db8:0:0:0:0:0:2", 1, NO_PROXY=whole)
    assert not proxied("2001:db8::9", NO_PROXY="2001:db8::/32")


@pytest.mark.parametrize(
    "proxy", ["http://proxy:99999", "http://proxy:port", "http://[::1", "http://:3128", "http://"]
)
def test_a_proxy_that_is_no_url_is_named_without_its_password(proxy):
    value = proxy.replace("://", "://me:secret@")
    with pytest.raises(ProxyFailed, match="HTTPS_PROXY") as caught:
        find_proxy("https", "example.com", 443, {"https_proxy": value})
    assert "secret" not in str(caught.value)


def test_loopback_is_never_behind_a_proxy():
    assert not proxied("localhost")
    assert not proxied("127.0.0.1")
    assert not proxied("::1")
    assert proxied("127.example.com")


def test_the_tls_context_verifies_and_reads_the_certificates_that_the_environment_names(tmp_path):
    context = make_tls_context({})
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        with pytest.raises(OSError, match="SSL_CERT_FILE"):
            make_tls_context({name: str(tmp_path / "missing.pem")})
