#pragma once

namespace pretend {

bool same_text(const char* a, const char* b);

}  // namespace pretend
