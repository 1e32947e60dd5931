// What a device's process does for the process of the user.
#pragma once

#include "device/protocol.h"

namespace pretend {

// Do a task other than kConnect; `file` is closed by it. Called from several threads at once.
void perform(const Request& request, int file, Answer* answer);

void map_file(const Request& request, int file, Answer* answer);
void load_module(int file, Answer* answer);
void unload_module(const Request& request, Answer* answer);
void find_function(const Request& request, Answer* answer);
void share_variables(const Request& request, int file, Answer* answer);
void find_variable(const Request& request, Answer* answer);
void launch(const Request& request, Answer* answer);

}  // namespace pretend
