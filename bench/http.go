package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

func httpOK(ctx context.Context, url string) bool {
	_, err := httpGet(ctx, url)
	return err == nil
}

// httpGet returns the body of a 200 answer; any other is an error.
func httpGet(ctx context.Context, url string) ([]byte, error) {
	return httpDo(ctx, http.MethodGet, url)
}

func httpDo(ctx context.Context, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %.200s", method, url, resp.Status, body)
	}
	return body, nil
}

// queuesPage is an answer of GET /api/v1/queues, as far as it is read here.
type queuesPage struct {
	Queues []pageQueue `json:"queues"`
	Next   string      `json:"next"` // where the next page is
}

type pageQueue struct {
	Name  string `json:"name"`
	Items int64  `json:"items"`
}

// queuesPage asks for a page of queues and returns its size in bytes too.
func (s *server) queuesPage(ctx context.Context, path string) (page queuesPage, bytes int, err error) {
	body, err := httpGet(ctx, "http://"+s.admin+path)
	if err != nil {
		return page, 0, err
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return page, 0, fmt.Errorf("answer of %s: %w", path, err)
	}
	return page, len(body), nil
}

// count asks a server with an HTTP port how many live messages a queue has; 0 if it does not know the queue.
func (s *server) count(ctx context.Context, queue string) (int64, error) {
	page, _, err := s.queuesPage(ctx, "/api/v1/queues?limit=1&prefix="+url.QueryEscape(queue))
	if err != nil || len(page.Queues) == 0 || page.Queues[0].Name != queue {
		return 0, err
	}
	return page.Queues[0].Items, nil
}

// allQueues reads all pages of queues and returns how many queues there are and the bytes of the pages.
func (s *server) allQueues(ctx context.Context) (queues, bytes int, err error) {
	for path := "/api/v1/queues?limit=1000"; path != ""; {
		page, n, err := s.queuesPage(ctx, path)
		if err != nil {
			return 0, 0, err
		}
		queues, bytes, path = queues+len(page.Queues), bytes+n, page.Next
	}
	return queues, bytes, nil
}

// behind is how many records of the log a server's checkpoint does not hold yet, nil if it does not tell.
func (s *server) behind(ctx context.Context) any {
	body, err := httpGet(ctx, "http://"+s.admin+"/api/v1/status")
	if err != nil {
		return nil
	}
	type position struct {
		LSN int64 `json:"lsn"`
	}
	var status struct{ Log, Tree *position }
	if json.Unmarshal(body, &status) != nil || status.Log == nil || status.Tree == nil {
		return nil
	}
	return count(status.Log.LSN - status.Tree.LSN)
}
