package netguard

import "testing"

func TestEverySpecialRangeIsRefusedWhenDialled(t *testing.T) {
	g, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for network, addresses := range map[string][]string{
		"tcp4": {
			"0.1.2.3", "10.255.255.255", "100.100.100.200", "127.0.0.1", "169.254.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
			"192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		},
		"tcp6": {
			"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
			"2002:7f00:1::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
		},
	} {
		for _, address := range addresses {
			target := address + ":80"
			if network == "tcp6" {
				target = "[" + address + "]:80"
			}
			if err := g.public.Control(network, target, nil); err == nil {
				t.Errorf("%s would be dialled", address)
			}
		}
	}
	for network, address := range map[string]string{"tcp4": "93.184.215.14:443", "tcp6": "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443"} {
		if err := g.public.Control(network, address, nil); err != nil {
			t.Errorf("the public %s: %v", address, err)
		}
	}
	if err := g.public.Control("unix", "/var/run/docker.sock", nil); err == nil {
		t.Error("a socket would be dialled")
	}
}

func TestHostsAreTrustedByNameAndPort(t *testing.T) {
	g, err := New([]string{"Wiki.Local.", "10.0.0.7:8080", "[::1]:80", "fd00::2", "[fd00::3]"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[[2]string]bool{
		{"wiki.local", "443"}: true, {"WIKI.local.", "1"}: true, {"evil.wiki.local", "443"}: false,
		{"10.0.0.7", "8080"}: true, {"10.0.0.7", "80"}: false, {"::1", "80"}: true, {"::1", "81"}: false, {"fd00::2", "9"}: true, {"fd00::3", "9"}: true,
	} {
		if got := g.trusts(target[0], target[1]); got != want {
			t.Errorf("trusts(%s, %s) = %v", target[0], target[1], got)
		}
	}
	for _, entry := range []string{"", "*", "*.local", "http://x", "a/b", "x:", "x:0", "x:99999", "x:http", ":80", "a b"} {
		if _, err := New([]string{entry}); err == nil {
			t.Errorf("%q was taken", entry)
		}
	}
}
