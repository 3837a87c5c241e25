package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	line1 = `{"client":"a","object":"nightly","kind":"acquire","token":1,"mode":"exclusive","slots":0,"call":0,"return":10,"outcome":"ok"}` + "\n"
	line2 = `{"client":"a","object":"nightly","kind":"release","token":1,"mode":"exclusive","slots":0,"call":20,"return":30,"outcome":"ok"}` + "\n"
	line3 = `{"client":"b","object":"nightly","kind":"acquire","token":2,"mode":"exclusive","slots":0,"call":5,"return":25,"outcome":"ok"}` + "\n"
	early = `{"client":"b","object":"nightly","kind":"acquire","token":2,"mode":"exclusive","slots":0,"call":5,"return":15,"outcome":"ok"}` + "\n"
	fence = `{"client":"b","object":"nightly","kind":"write","token":2,"call":26,"return":27,"outcome":"ok"}` + "\n"
	other = `{"client":"b","object":"imports","kind":"acquire","token":1,"mode":"slot","slots":3,"slot":2,"call":26,"return":null,"outcome":"ok"}` + "\n"
)

// answer runs the program with these files and returns its exit code and output.
func answer(t *testing.T, flags []string, contents ...string) (int, string, string) {
	t.Helper()
	arguments := flags
	for number, content := range contents {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("h%d.jsonl", number))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, path)
	}
	var out, notes bytes.Buffer
	code := run(arguments, &out, &notes)
	return code, out.String(), notes.String()
}

func TestALinearizableHistoryIsCounted(t *testing.T) {
	code, out, notes := answer(t, nil, line1+line2, line3+fence+other)
	expected := `acquire: 3 ok, 0 failed, 0 unknown
release: 1 ok, 0 failed, 0 unknown
lost: 0 ok, 0 failed, 0 unknown
write: 1 ok, 0 failed, 0 unknown
2 objects, 5 operations, 3 acquisitions: linearizable
`
	if code != exitOK || out != expected || notes != "" {
		t.Errorf("%d %q %q", code, out, notes)
	}
}

func TestAViolationIsReportedWithAPage(t *testing.T) {
	pages := filepath.Join(t.TempDir(), "pages")
	code, out, notes := answer(t, []string{"--visualize", pages}, line1+line2, early+fence+other)
	if code != exitViolated || notes != "" {
		t.Errorf("%d %q", code, notes)
	}
	for _, part := range []string{"nightly: not linearizable (times since 0.000000 s of CLOCK_BOOTTIME)\n", "h1.jsonl:1)", "2 objects, 5 operations, 3 acquisitions: not linearizable (1 violation)\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	page, err := os.ReadFile(filepath.Join(pages, "nightly.html"))
	if err != nil || !bytes.Contains(page, []byte("acquire token 2 (exclusive) by b: ok")) {
		t.Errorf("%v, %d bytes", err, len(page))
	}
}

func TestAnIncompleteLastLineIsSkipped(t *testing.T) {
	code, out, notes := answer(t, nil, line1+line2+line3[:40])
	if code != exitOK || !strings.Contains(out, "2 operations") || !strings.Contains(notes, "h0.jsonl:3: skipped") {
		t.Errorf("%d %q %q", code, out, notes)
	}
	// A complete last line counts even without a newline.
	code, out, notes = answer(t, nil, line1+strings.TrimSpace(line2))
	if code != exitOK || !strings.Contains(out, "2 operations") || notes != "" {
		t.Errorf("%d %q %q", code, out, notes)
	}
}

func TestUnusableInput(t *testing.T) {
	change := func(old, new string) string { return line1 + strings.Replace(line2, old, new, 1) }
	acquisition := func(old, new string) string { return line1 + strings.Replace(line3, old, new, 1) }
	for content, part := range map[string]string{
		"":                                                              "no operations in ",
		line1 + "\n":                                                    ":2: empty line; remove it",
		line1 + "3\n":                                                   ":2: ",
		line1 + line3[:40] + "\n" + line2:                               ":2: ",
		line1 + strings.TrimSpace(line3) + "{}":                         ":2: skipped",
		line1 + strings.TrimSpace(line3) + line2:                        "write one object per line",
		change(`"client":"a"`, `"client":""`):                           `"client" is missing`,
		change(`"nightly"`, `""`):                                       `"object" is missing`,
		change(`"release"`, `"leave"`):                                  `"kind" is "leave"; use one of "acquire", "release", "lost", "write"`,
		change(`"ok"`, `"fine"`):                                        `"outcome" is "fine"`,
		change(`"call":20,`, ``):                                        `"call" is missing`,
		change(`"call":20,`, `"call":"20",`):                            `"call" cannot be a string`,
		change(`"call":20,`, `"call":31,`):                              `"return" 30 is before "call" 31`,
		change(`"return":30,`, `"end":30,`):                             `unknown field "end"`,
		change(`"token":1,`, `"token":null,`):                           `"token" is missing; a release has the token`,
		change(`"token":1,`, `"token":0,`):                              `tokens are positive`,
		change(`"exclusive"`, `"none"`):                                 `"mode" is "none"`,
		acquisition(`"token":2`, `"token":null`):                        `"token" is missing; an acquisition that succeeded has one`,
		acquisition(`"ok"`, `"unknown"`):                                `"token" is given for outcome "unknown"`,
		acquisition(`"exclusive"`, `""`):                                `"mode" is ""`,
		acquisition(`"exclusive"`, `"slot"`):                            `give the number of slots`,
		acquisition(`"slots":0`, `"slots":2`):                           `"slots" is 2 in mode "exclusive"`,
		acquisition(`"slots":0`, `"slot":2`):                            `"slot" is given in mode "exclusive"`,
		acquisition(`exclusive","slots":0`, `slot","slots":2,"slot":2`): `"slot" is 2 of 2`,
		line1 + strings.NewReplacer("release", "lost", `"ok"`, `"failed"`).Replace(line2): `"outcome" of a lost lock is "failed"`,
	} {
		code, out, notes := answer(t, nil, content)
		skipped := strings.Contains(part, "skipped")
		if (code != exitUnusable) != skipped || !strings.Contains(notes, part) {
			t.Errorf("%d, no %q: %q %q", code, part, out, notes)
		}
		if !skipped && !strings.Contains(notes, "h0.jsonl") {
			t.Errorf("no file in %q", notes)
		}
	}
}

func TestUnusableArguments(t *testing.T) {
	for _, flags := range [][]string{{}, {"--timeout", "0s", "x"}, {"--no-such-flag"}, {"/no/such/file"}} {
		if code, out, notes := answer(t, flags); code != exitUnusable || out != "" || notes == "" {
			t.Errorf("%v: %d %q %q", flags, code, out, notes)
		}
	}
	if code, out, _ := answer(t, []string{"--version"}); code != exitOK || !strings.HasPrefix(out, "porcupine ") {
		t.Errorf("%d %q", code, out)
	}
}
