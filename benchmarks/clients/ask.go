// Asks for decisions with net/http of Go.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	n, _ := strconv.Atoi(os.Args[2])
	decided := 0
	for i := 0; i < n; i++ {
		session := fmt.Sprintf("go-%d", i)
		body := strings.NewReader(fmt.Sprintf(`{"session": %q, "step": 0}`, session))
		answer, err := http.Post(os.Args[1], "application/json", body)
		if err != nil {
			continue
		}
		var told struct{ Session string }
		if json.NewDecoder(answer.Body).Decode(&told) == nil && answer.StatusCode == 200 && told.Session == session {
			decided++
		}
		answer.Body.Close()
	}
	fmt.Println(decided)
}
